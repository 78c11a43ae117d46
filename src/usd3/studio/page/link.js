/** The link that reproduces a result: everything is in its fragment, which a browser never sends. */

import { decode, encode } from "./objects.js";

const NUMBERS = ["steps", "temperature", "top_p", "guidance", "seed", "num", "chosen", "tempo"];

/**
 * The fragment of a state.
 * @param {{model: string, object: Thing, shown?: Thing|null, draw: boolean, where: Object|null}} state with the settings
 */
export function fragmentOf(state) {
  const query = new URLSearchParams({ model: state.model });
  NUMBERS.forEach((name) => { if (state[name] !== null && state[name] !== undefined) query.set(name, state[name]); });
  if (state.sampler) query.set("sampler", state.sampler);
  if (state.where) query.set("where", JSON.stringify(state.where));
  if (state.object !== null) query.set("object", encode(state.object));
  if (state.shown) query.set("shown", encode(state.shown));
  if (state.draw) query.set("draw", "1");
  return `#${query}`;
}

/** The state of a fragment; null where it names no model. Throws an error where it cannot be read. */
export function stateOf(fragment) {
  const query = new URLSearchParams(fragment.replace(/^#/, ""));
  if (!query.get("model")) return null;
  try {
    const numbers = NUMBERS.filter((name) => query.has(name)).map((name) => [name, Number(query.get(name))]);
    if (numbers.some(([, value]) => !Number.isFinite(value))) throw new Error("no number");
    const thing = (name) => (query.has(name) ? decode(query.get(name)) : null);
    return {
      model: query.get("model"), ...Object.fromEntries(numbers), sampler: query.get("sampler") ?? undefined,
      where: query.has("where") ? JSON.parse(query.get("where")) : null,
      object: thing("object"), shown: thing("shown"), draw: query.get("draw") === "1",
    };
  } catch {
    throw new Error("This link is damaged: its part after # cannot be read.");
  }
}
