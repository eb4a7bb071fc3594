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

function shuffle(texts) {
  const keyed = texts.map((text) => ({ text, key: Math.random() }));
  return keyed.sort((one, other) => one.key - other.key).map(({ text }) => text);
}

/** Rename the layers inside texts, but not their numbers of runs and gains. */
const NAMES = /\*\d+|:(?:mean|sum|gain=[-+.\de]+)|(?:[A-Za-z]\w*:)?(\d+(?:-\d+)?)(\.\w+)?/g;
const rename = (name) => (texts) =>
  texts.map((text) => text.replace(NAMES, (whole, layers, part = "") => (layers ? name(whole, layers, part) : whole)));
const keepSublayer = (sublayer) => rename((whole) => `${whole.replace(/\.\w+$/, "")}.${sublayer}`);

/** Write (5|6)*2 as (Q4_0:5|Q4_0:6)*2. */
export const quantize = (type) => rename((whole, layers, part) => `${type}:${layers}${part}`);

/** Edits of a selection: the new texts, the fewest stages, and what the edit does. */
export const EDITS = {
  skip: { work: () => [], title: "Skip the layers (Delete)" },
  repeat: { work: repeat, title: "Run the layers once more, with the same weights" },
  "repeat middle": { work: (texts) => texts.map(() => texts[texts.length >> 1]), least: 2,
    title: "Run the middle layer in place of each of the others" },
  reverse: { work: (texts) => texts.toReversed(), least: 2, title: "Run the layers in reverse order" },
  shuffle: { work: shuffle, least: 2, title: "Run the layers in random order" },
  parallel: { work: (texts) => [`(${texts.join("|")})`], least: 2,
    title: "Give all layers the same input, and average their outputs" },
  "loop ×3": { work: (texts) => [`(${texts.join("|")})*3`], least: 2, title: "Run in parallel, three times in a row" },
  "damp ½": { work: (texts) => [`(${texts.join(" ")}):gain=0.5`], title: "Add only half of the update of the layers" },
  "attention only": { work: keepSublayer("attn"), sublayers: true, title: "Skip the MLP of the layers" },
  "MLP only": { work: keepSublayer("mlp"), sublayers: true, title: "Skip the attention of the layers" },
  ungroup: { work: (texts) => texts.map(unwrap), wrapped: true, title: "Remove brackets and repeats" },
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
