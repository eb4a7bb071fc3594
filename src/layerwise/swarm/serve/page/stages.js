/** How edits of the strip are written in the plan language, and the order of the blocks. */

/** Remove the outermost brackets, merge rule and number of runs: (15|16)*2 becomes 15 16, and 6*4 becomes 6. */
function unwrap(text) {
  const body = text.replace(/\*\d+$/, "").replace(/:(mean|sum|gain=[^:)\]]*)$/, "");
  let depth = 0;
  const flatten = (character) => {
    depth += "([".includes(character) - ")]".includes(character);
    return character === "|" && !depth ? " " : character;
  };
  return /^[([]/.test(body) ? [...body.slice(1, -1)].map(flatten).join("") : body;
}

/** Run once more: 6 becomes 6*2, (4|5)*2 becomes (4|5)*3, and 4 5 becomes [4 5]*2. */
function repeat(texts) {
  const [, body, times] = /^(.*?)(?:\*(\d+))?$/.exec(texts[0]);
  return [texts.length > 1 ? `[${texts.join(" ")}]*2` : `${body}*${Number(times ?? 1) + 1}`];
}

/** Rename the layers inside texts, but not their numbers of runs and gains. */
const NAMES = /\*\d+|:(?:mean|sum|gain=[-+.\de]+)|(?:[A-Za-z]\w*:)?(\d+(?:-\d+)?)(\.\w+)?/g;
const rename = (name) => (texts) =>
  texts.map((text) => text.replace(NAMES, (whole, layers, part = "") => (layers ? name(whole, layers, part) : whole)));
const keepSublayer = (sublayer) => rename((whole) => `${whole.replace(/\.\w+$/, "")}.${sublayer}`);

/** Write (5|6)*2 as (Q4_0:5|Q4_0:6)*2. */
export const quantize = (type) => rename((whole, layers, part) => `${type}:${layers}${part}`);

/** Edits of a selection: the new texts, the fewest stages, and a description. */
export const EDITS = {
  "run again": { work: repeat, title: "Run the selected layers once more; the weights are shared" },
  reverse: { work: (texts) => texts.toReversed(), least: 2, title: "Run the selected layers in reverse order" },
  parallel: { work: (texts) => [`(${texts.join("|")})`], least: 2, title: "Run side by side, average the outputs" },
  "loop ×3": { work: (texts) => [`(${texts.join("|")})*3`], least: 2, title: "Run side by side, three times in a row" },
  "damp ½": { work: (texts) => [`(${texts.join(" ")}):gain=0.5`], title: "Add half of the update (gain 0.5)" },
  "attention only": { work: keepSublayer("attn"), sublayers: true, title: "Run without the MLP" },
  "MLP only": { work: keepSublayer("mlp"), sublayers: true, title: "Run without the attention" },
  ungroup: { work: (texts) => texts.map(unwrap), wrapped: true, title: "Remove brackets and repeats" },
  skip: { work: () => [], title: "Skip the selected layers (Delete)" },
};

/** Place each skipped layer after the nearest layer before it; `index` counts the stages before an item. */
export function layOut({ stages, skipped }) {
  const items = stages.map((stage) => ({ stage, layers: stage.layers }));
  for (const layer of skipped) {
    const before = Math.max(...items.flatMap(({ layers }) => layers).filter((each) => each < layer));
    items.splice(items.findLastIndex(({ layers }) => layers.includes(before)) + 1, 0, { stage: null, layers: [layer] });
  }
  let index = 0;
  return items.map((item) => ({ ...item, index: item.stage ? index++ : index }));
}
