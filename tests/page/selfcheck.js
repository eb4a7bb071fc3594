"use strict";
// Put into a copy of a report by the browser test: uses the page as a reader would and writes down what happened.
(() => {
  const failures = [];
  window.addEventListener("error", (event) => failures.push(`error: ${event.message}`));
  window.addEventListener("unhandledrejection", (event) => failures.push(`rejection: ${event.reason}`));
  window.addEventListener("securitypolicyviolation", (event) => failures.push(`blocked: ${event.blockedURI} ${event.violatedDirective}`));

  const all = (selector) => [...document.querySelectorAll(selector)];
  const one = (selector) => document.querySelector(selector);
  const background = () => getComputedStyle(document.body).backgroundColor;
  const input = (node, value) => { node.value = value; node.dispatchEvent(new Event("input", { bubbles: true })); };
  const shownRows = () => all(".sortable tbody tr").filter((row) => !row.hidden);

  function sorted(column) {
    const texts = all(".sortable tbody tr").map((row) => row.cells[column].textContent.replace("−", "-"));
    const values = texts.map(parseFloat).filter((value) => !Number.isNaN(value));
    return values.length > 2 && values.every((value, at) => at === 0 || values[at - 1] <= value);
  }

  function table() {
    const heading = all(".sortable thead th")[6];
    const before = sorted(6);
    heading.querySelector("button").click();
    const up = { aria: heading.getAttribute("aria-sort"), sorted: sorted(6) };
    heading.querySelector("button").click();
    const down = { aria: heading.getAttribute("aria-sort"), sorted: sorted(6) };
    const total = shownRows().length;
    const find = one(".filters input");
    input(find, "skip");
    const skips = shownRows();
    const onlySkips = skips.length > 0 && skips.every((row) => row.cells[1].textContent === "skip");
    input(find, "no plan has this text");
    const none = shownRows().length;
    input(find, "");
    return { before, up, down, total, onlySkips, none, after: shownRows().length };
  }

  function theme() {
    const color = () => one(".plot .xtick text").style.fill;
    const light = [background(), color()];
    one("#theme").click();
    const dark = [background(), color()];
    one("#theme").click();
    return { light, dark, again: [background(), color()] };
  }

  function choices() {
    const pills = all('.pills input:not([name$="-scale"])');
    pills.forEach((pill) => pill.click());
    all("fieldset").forEach((fieldset) => fieldset.querySelector("input").click());
    const scale = one("input[data-scale]");
    if (!scale) return { pressed: pills.length };
    const { figure, name } = { figure: scale.dataset.figure, name: scale.name };
    const ticks = () => all(`[data-figure="${figure}"] .ytick text`).map((tick) => tick.textContent);
    const linear = ticks();
    one(`input[name="${name}"][value="1"]`).click();
    const rooted = ticks();
    one(`input[name="${name}"][value="0"]`).click();
    return { pressed: pills.length, linear, rooted };
  }

  function legend() {
    const chip = one(".legend[data-figures] button");
    const figure = one(".legend[data-figures]").dataset.figures.split(" ")[0];
    const lines = () => all(`[data-figure="${figure}"] .scatterlayer .trace`).length;
    const before = lines();
    chip.click();
    const after = lines();
    chip.click();
    return { before, after, again: lines() };
  }

  function report() {
    const result = {
      width: innerWidth,
      overflow: document.documentElement.scrollWidth - innerWidth,
      plots: all(".plot").length,
      drawn: all(".plot").filter((plot) => plot.querySelector(".main-svg .xtick, .main-svg .ytick")).length,
      wide: all(".scroll").filter((box) => box.checkVisibility({ contentVisibilityAuto: true }) && box.scrollWidth - box.clientWidth > 4).length,
      hinted: all(".scroll").filter((box) => box.hasAttribute("data-more") && getComputedStyle(box, "::after").content.includes("scroll")).length,
      maps: all(".plot .heatmaplayer image").length,
      pictures: all(".sortable svg path").length,
    };
    const scaled = () => all("input[data-scale]:checked").filter((pill) => pill.value === "1").length;
    result.rootedAtFirst = scaled();
    // On a phone the page is looked at and not used: what it answers depends on no width.
    const used = location.search === "?used";
    const plans = one(".sortable") ? [table] : [];
    for (const step of used ? [...plans, theme, choices, legend] : []) {
      try { result[step.name] = step(); } catch (error) { failures.push(`${step.name}: ${error.message}`); }
    }
    result.failures = failures;
    const node = document.createElement("pre");
    node.id = "selfcheck";
    node.textContent = JSON.stringify(result);
    document.body.append(node);
    if (parent !== window) parent.postMessage(node.textContent, "*");
  }

  const waiting = setInterval(() => {
    if (document.documentElement.dataset.ready !== "yes") return;
    clearInterval(waiting);
    report();
  }, 20);
})();
