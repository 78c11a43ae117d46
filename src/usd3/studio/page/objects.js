/**
 * Objects in the form of the page, as pure functions.
 *
 * An object is a nested array of integers where -1 is open, a string, or a record of a table's columns.
 * @typedef {number|Nested[]} Nested
 * @typedef {Nested|string|Object<string, string|null>} Thing
 */

export const OPEN = -1;

/** @returns {number[]} the elements of a nested array, row by row */
export const flat = (object) => (Array.isArray(object) ? object.flat(Infinity) : [object]);

/** @returns {number[]} the shape of a nested array */
export const shapeOf = (object) => (Array.isArray(object) ? [object.length, ...shapeOf(object[0])] : []);

/** A nested array of this shape from its elements. */
export function shaped(values, shape) {
  let at = 0;
  const build = (depth) =>
    depth === shape.length ? values[at++] : Array.from({ length: shape[depth] }, () => build(depth + 1));
  return build(0);
}

/** The nested array whose elements are `change(value, ...values of the others, index)`. */
export function mapped(object, change, ...others) {
  const rest = others.map(flat);
  return shaped(flat(object).map((value, i) => change(value, ...rest.map((values) => values[i]), i)), shapeOf(object));
}

/** What is given, and elsewhere the result. */
export const merged = (given, result) =>
  result === null ? given : mapped(given, (value, drawn) => (value === OPEN ? drawn : value), result);

export const isOpen = (object) => flat(object).every((value) => value === OPEN);
export const hasOpen = (object) => flat(object).some((value) => value === OPEN);
export const equal = (a, b) => JSON.stringify(a) === JSON.stringify(b);

/** An object as a short text for a link. */
export function encode(object) {
  if (typeof object === "string") return `t${object}`;
  if (!Array.isArray(object)) return `j${JSON.stringify(object)}`;
  const shape = shapeOf(object);
  const values = flat(object);
  const rows = `a${shape.join("x")}~${runs(values)}`;
  if (shape.length < 2) return rows;
  const columns = `b${shape.join("x")}~${runs(turned(values, shape.at(-1)))}`;
  return columns.length < rows.length ? columns : rows;
}

/** The object of a text of `encode`. */
export function decode(text) {
  const [form, rest] = [text[0], text.slice(1)];
  if (form === "t") return rest;
  if (form === "j") return JSON.parse(rest);
  const [shapeText, runsText] = rest.split("~");
  const shape = shapeText.split("x").map(Number);
  const size = shape.reduce((product, length) => product * length, 1);
  if ((form !== "a" && form !== "b") || !Number.isInteger(size) || size < 1 || size > 1e6) throw new Error("no object");
  const values = unrun(runsText ?? "", size);
  if (values.length !== size) throw new Error("no object");
  return shaped(form === "a" ? values : turned(values, size / shape.at(-1)), shape);
}

/** Values of a table with `width` columns, column by column. */
function turned(values, width) {
  const height = values.length / width;
  return values.map((_, i) => values[(i % height) * width + Math.floor(i / height)]);
}

/** Runs of equal values: base 36, `_` where open, `*n` for n of them. */
function runs(values) {
  const parts = [];
  for (let i = 0; i < values.length; ) {
    let end = i;
    while (end < values.length && values[end] === values[i]) end++;
    const value = values[i] === OPEN ? "_" : values[i].toString(36);
    parts.push(end - i === 1 ? value : `${value}*${(end - i).toString(36)}`);
    i = end;
  }
  return parts.join(".");
}

function unrun(text, most) {
  const values = [];
  for (const part of text.split(".")) {
    const [value, times = "1"] = part.split("*");
    const [number, count] = [value === "_" ? OPEN : parseInt(value, 36), parseInt(times, 36)];
    if (Number.isNaN(number) || !(count >= 1) || values.length + count > most) throw new Error("no object");
    for (let i = 0; i < count; i++) values.push(number);
  }
  return values;
}
