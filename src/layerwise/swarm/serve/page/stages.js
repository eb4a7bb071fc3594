/** Texts of stages: how an edit of the strip is written in the plan language. */

/** Remove the outermost brackets, merge rule and number of runs: (15|16)*2 -> 15 16, 6*4 -> 6. */
export function unwrap(text) {
  const body = text.replace(/\*\d+$/, "").replace(/:(mean|sum|gain=[^:)\]]*)$/, "");
  if (!/^[([]/.test(body)) return body;
  let depth = 0;
  return [...body.slice(1, -1)]
    .map((character) => {
      depth += "([".includes(character) - ")]".includes(character);
      return character === "|" && !depth ? " " : character;
    })
    .join("");
}

/** Run a range once more: 6 -> 6*2, (4|5)*2 -> (4|5)*3, 4 5 -> [4 5]*2. */
export function repeat(texts) {
  if (texts.length > 1) return [`[${texts.join(" ")}]*2`];
  const [, body, times] = /^(.*?)(?:\*(\d+))?$/.exec(texts[0]);
  return [`${body}*${Number(times ?? 1) + 1}`];
}

const NAMES = /\*\d+|:(?:mean|sum|gain=[-+.\de]+)|(?:[A-Za-z]\w*:)?(\d+(?:-\d+)?)(\.\w+)?/g;

/** Change the layers inside a text: quantize(["4", "(5|6)*2"], "Q4_0") -> Q4_0:4, (Q4_0:5|Q4_0:6)*2. */
const renameLayers = (texts, rename) =>
  texts.map((text) => text.replace(NAMES, (whole, layers, sublayer) => (layers ? rename(whole, layers, sublayer ?? "") : whole)));

export const EDITS = {
  "run again": { change: repeat, title: "Run the selected layers once more, with the same weights" },
  reverse: { change: (texts) => texts.toReversed(), least: 2, title: "Run the selected layers in reverse order" },
  parallel: { change: (texts) => [`(${texts.join("|")})`], least: 2, title: "Run side by side and average the outputs" },
  "parallel ×3": { change: (texts) => [`(${texts.join("|")})*3`], least: 2, title: "Run side by side, three times in a row" },
  "damp ½": { change: (texts) => [`(${texts.join(" ")}):gain=0.5`], title: "Add half of what the layers add (gain 0.5)" },
  attn: { change: (texts) => renameLayers(texts, (whole) => `${whole.replace(/\.\w+$/, "")}.attn`), sublayer: true, title: "Run only the attention" },
  mlp: { change: (texts) => renameLayers(texts, (whole) => `${whole.replace(/\.\w+$/, "")}.mlp`), sublayer: true, title: "Run only the MLP" },
  ungroup: { change: (texts) => texts.map(unwrap), wrapped: true, title: "Remove brackets and repeats" },
  skip: { change: () => [], title: "Skip the selected layers (Delete)" },
};

export const quantize = (type) => (texts) => renameLayers(texts, (whole, layers, sublayer) => `${type}:${layers}${sublayer}`);

/** Place the skipped layers between the stages: each after the layer before it, or first. */
export function layOut({ stages, skipped }) {
  const items = stages.map((stage, index) => ({ stage, index, layers: stage.layers }));
  for (const layer of skipped) {
    let place = -1;
    for (let before = layer - 1; before >= 0 && place < 0; before -= 1) {
      place = items.findLastIndex((item) => item.layers.includes(before));
    }
    items.splice(place + 1, 0, { stage: null, layers: [layer] });
  }
  let index = 0;
  for (const item of items) {
    item.index = index;
    if (item.stage) index += 1;
  }
  return items;
}
