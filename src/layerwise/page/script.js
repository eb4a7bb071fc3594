"use strict";
// Draws the figures and handles theme, controls, legends, tables and print. The only dependency is Plotly.
(() => {
  const root = document.documentElement;
  const report = JSON.parse(document.getElementById("report-data").textContent);
  const plots = [...document.querySelectorAll(".plot")];
  const hidden = new Map(); // figure name -> strategies switched off
  const rooted = new Set(); // figure names on a square-root scale
  document.querySelectorAll('input[data-scale][value="1"]:checked').forEach((pill) => rooted.add(pill.dataset.figure));
  const config = { responsive: true, displaylogo: false, modeBarButtons: [["toImage", "resetScale2d"]] };
  let printing = false;

  // ---- theme
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => !printing && (root.dataset.theme ? root.dataset.theme === "dark" : system.matches);

  function themed(value, swaps) {
    if (typeof value === "string") return swapped(value, swaps);
    if (Array.isArray(value)) return value.map((inner) => themed(inner, swaps));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, themed(inner, swaps)]));
    }
    return value;
  }

  function swapped(color, swaps) {
    if (swaps[color]) return swaps[color];
    const parts = /^rgba\((\d+),(\d+),(\d+),([\d.]+)\)$/.exec(color);
    if (!parts) return color;
    const hex = "#" + parts.slice(1, 4).map((part) => Number(part).toString(16).padStart(2, "0")).join("");
    const other = swaps[hex];
    if (!other) return color;
    const channels = [1, 3, 5].map((at) => parseInt(other.slice(at, at + 2), 16));
    return `rgba(${channels.join(",")},${parts[4]})`;
  }

  // ---- square-root scale: sign(y) * sqrt(|y|), labeled in the real unit
  const bend = (value) => (value === null ? null : Math.sign(value) * Math.sqrt(Math.abs(value)));

  function bent(figure) {
    const values = [];
    for (const trace of figure.data) {
      const plain = trace.y;
      if (trace.error_y && trace.error_y.array) {
        const { array, arrayminus } = trace.error_y;
        trace.error_y.array = array.map((above, at) => bend(plain[at] + above) - bend(plain[at]));
        trace.error_y.arrayminus = arrayminus.map((below, at) => bend(plain[at]) - bend(plain[at] - below));
        values.push(...plain.map((value, at) => value + array[at]), ...plain.map((value, at) => value - arrayminus[at]));
      }
      trace.y = plain.map(bend);
      if (trace.visible !== false) values.push(...plain.filter((value) => value !== null));
    }
    const axis = figure.layout.yaxis;
    const ticks = bentTicks(...(axis.range || [Math.min(0, ...values), Math.max(0, ...values)]));
    Object.assign(axis, { tickmode: "array", tickvals: ticks.map(bend), ticktext: ticks.map((tick) => tickText(tick, axis)) });
    if (axis.range) axis.range = axis.range.map(bend);
    for (const shape of figure.layout.shapes || []) {
      if (shape.yref && !shape.yref.includes("domain")) Object.assign(shape, { y0: bend(shape.y0), y1: bend(shape.y1) });
    }
    return figure;
  }

  function bentTicks(low, high) {
    const least = (bend(high) - bend(low)) / 9;
    const kept = [0];
    for (let power = -6; power <= 6; power += 1) {
      for (const digit of [1, 2, 5]) {
        for (const tick of [digit * 10 ** power, -digit * 10 ** power]) {
          const apart = kept.every((other) => Math.abs(bend(other) - bend(tick)) >= least);
          if (tick >= low && tick <= high && apart) kept.push(tick);
        }
      }
    }
    return kept;
  }

  function tickText(tick, axis) {
    const share = axis.tickformat && axis.tickformat.includes("%");
    const text = share ? `${Number((100 * tick).toPrecision(2))}%` : String(Number(tick.toPrecision(2)));
    return text.replace("-", "−");
  }

  // ---- figures
  function chosen(name) {
    const { choices, leader } = report.figures[name];
    return Array.from({ length: choices }, (_, at) => {
      const pill = document.querySelector(`input[data-figure="${leader}"][data-choice="${at}"]:checked`);
      const menu = document.querySelector(`select[data-figure="${leader}"][data-choice="${at}"]`);
      return (pill || menu || { value: "0" }).value;
    });
  }

  function draw(plot) {
    const name = plot.dataset.figure;
    const original = report.figures[name].variants[chosen(name).join(".")];
    const absent = plot.parentElement.querySelector(".absent");
    plot.hidden = !original;
    absent.hidden = Boolean(original);
    if (!original) {
      absent.textContent = "Not measured or not defined for this choice.";
      return;
    }
    let figure = themed(original, isDark() ? report.swaps : {});
    const off = hidden.get(name) || new Set();
    for (const trace of figure.data) if (off.has(trace.legendgroup)) trace.visible = false;
    if (plot.clientWidth < 560) for (const trace of figure.data) delete trace.texttemplate; // cells too narrow for numbers
    const { ticktext } = figure.layout.yaxis;
    // Break long row labels, so that a narrow plot has room for its axis.
    if (plot.clientWidth < 420 && ticktext) figure.layout.yaxis.ticktext = ticktext.map((text) => text.replace(/(.{18}\S*)\s/g, "$1<br>"));
    if (rooted.has(report.figures[name].leader)) figure = bent(figure);
    figure.layout.dragmode = matchMedia("(pointer: coarse)").matches ? false : "zoom";
    if (printing) Object.assign(figure.layout, { autosize: false, width: plot.clientWidth });
    Plotly.react(plot, figure.data, figure.layout, config);
  }

  const drawNamed = (names) => plots.filter((plot) => names.includes(plot.dataset.figure)).forEach(draw);
  const followers = (leader) => Object.keys(report.figures).filter((name) => report.figures[name].leader === leader);
  const drawAll = () => plots.forEach(draw);

  function drawOneByOne(waiting) {
    if (!waiting.length) {
      root.dataset.ready = "yes";
      return;
    }
    draw(waiting[0]);
    setTimeout(() => drawOneByOne(waiting.slice(1)));
  }

  function wireFigures() {
    document.addEventListener("change", (event) => {
      const { figure, choice, scale } = event.target.dataset;
      if (scale) event.target.value === "1" ? rooted.add(figure) : rooted.delete(figure);
      if (figure && (choice || scale)) drawNamed(followers(figure));
    });
    for (const legend of document.querySelectorAll(".legend")) {
      const names = legend.dataset.figures.split(" ");
      legend.addEventListener("click", (event) => {
        const chip = event.target.closest("button");
        if (!chip) return;
        chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
        const off = [...legend.querySelectorAll('[aria-pressed="false"]')].map((button) => button.dataset.group);
        names.forEach((name) => hidden.set(name, new Set(off)));
        drawNamed(names);
      });
    }
  }

  function wireTheme() {
    const toggle = document.getElementById("theme");
    const show = () => {
      toggle.textContent = isDark() ? "Light" : "Dark";
      toggle.setAttribute("aria-pressed", String(isDark()));
    };
    toggle.addEventListener("click", () => {
      root.dataset.theme = isDark() ? "light" : "dark";
      show();
      drawAll();
    });
    system.addEventListener("change", () => { show(); drawAll(); });
    show();
  }

  // ---- tables that can be sorted and searched
  function wireTables() {
    document.querySelectorAll("table.sortable").forEach((table) => {
      const rows = [...table.tBodies[0].rows];
      const headings = [...table.tHead.rows[0].cells];
      headings.forEach((heading, column) => heading.querySelector("button").addEventListener("click", () => {
        const direction = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
        headings.forEach((other) => other.setAttribute("aria-sort", other === heading ? direction : "none"));
        const sign = direction === "ascending" ? 1 : -1;
        rows.sort((a, b) => compared(a.cells[column], b.cells[column], sign));
        table.tBodies[0].append(...rows);
      }));
      const filters = table.parentElement.previousElementSibling;
      filters.querySelector("input").addEventListener("input", (event) => {
        const words = event.target.value.trim().toLowerCase();
        for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(words);
        filters.querySelector("output").textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length}`;
      });
    });
  }

  function compared(left, right, sign) {
    if (!left.classList.contains("number")) {
      return sign * left.textContent.localeCompare(right.textContent, undefined, { numeric: true });
    }
    const [a, b] = [numberOf(left), numberOf(right)];
    return Number.isNaN(a) || Number.isNaN(b) ? Number.isNaN(a) - Number.isNaN(b) : sign * (a - b); // missing values stay last
  }

  // A factor, ×12, is more than any percentage.
  function numberOf(cell) {
    const plain = cell.textContent.replaceAll("−", "-").replaceAll(/[,<]/g, "");
    const text = plain.replace(/(\d)×10\^/, "$1e").replace("×10^", "×1e");
    return text.startsWith("×") ? 100 * parseFloat(text.slice(1)) : parseFloat(text);
  }

  // ---- navigation and print
  function wireNavigation() {
    const links = new Map([...document.querySelectorAll("nav ol a")].map((link) => [link.hash.slice(1), link]));
    const seen = new IntersectionObserver((entries) => {
      const top = entries.filter((entry) => entry.isIntersecting)[0];
      if (!top) return;
      links.forEach((link, id) => (id === top.target.id ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current")));
    }, { rootMargin: "-15% 0px -75% 0px" });
    document.querySelectorAll("section").forEach((section) => seen.observe(section));
  }

  function wirePrint() {
    addEventListener("beforeprint", () => {
      printing = true;
      root.classList.add("printing");
      document.querySelectorAll("details").forEach((details) => { details.open = true; });
      drawAll();
    });
    addEventListener("afterprint", () => {
      printing = false;
      root.classList.remove("printing");
      drawAll();
    });
  }

  // ---- tables and menus that overflow are marked until they are scrolled to the end
  function wireScrolling() {
    const tell = (box) => box.toggleAttribute("data-more", box.scrollWidth - box.clientWidth - box.scrollLeft > 4);
    const sized = new ResizeObserver((entries) => entries.forEach((entry) => tell(entry.target)));
    document.querySelectorAll(".scroll, nav ol").forEach((box) => {
      box.addEventListener("scroll", () => tell(box), { passive: true });
      sized.observe(box);
    });
  }

  wireTheme();
  wireScrolling();
  wireFigures();
  wireTables();
  wireNavigation();
  wirePrint();
  drawOneByOne(plots);
})();
