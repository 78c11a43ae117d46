/** The editor of arrays of integers: coloured cells, one colour for each category. It can edit anything numeric. */

import { button, colour, h, sharp } from "../dom.js";
import { fillLabel, openUp, plan, put } from "../edits.js";
import { OPEN, flat, merged } from "../objects.js";
import { cellGrid } from "./cells.js";

export const labels = { fill: "Fill the rest" };
export const keys = [["Arrow keys", "move"], ["Enter or Space", "paint with the category that is chosen"], ["0 … 9", "choose a category; two digits quickly for larger ones"], ["Delete", "open the cell"]];

const SWATCHES = 24;
const QUICK = 900; // milliseconds between two digits of one number

const PALETTE = ["#3f4856", "#dd6a45", "#3f9f8c", "#e2b04a", "#9a86d6", "#d9799b", "#5b8fd0", "#9aba54"];

/** The colour of a category: of a palette where there are few. */
export const hue = (value, count) =>
  (count <= PALETTE.length ? PALETTE[value] : `hsl(${Math.round(((value * 0.618) % 1) * 360)} 58% ${46 + (value % 3) * 9}%)`);

/** Rows and columns in which an object of any shape is shown. */
export function layout(shape) {
  const size = shape.reduce((product, length) => product * length, 1);
  if (shape.length > 1) return { rows: size / shape.at(-1), columns: shape.at(-1) };
  const columns = Math.min(size, 32);
  return { rows: Math.ceil(size / columns), columns };
}

/** @param {Object} context see studio.js */
export function create(context) {
  const { model } = context;
  const count = model.num_classes;
  const { rows, columns } = layout(model.shape);
  let value = 0;
  let typed = { digits: "", time: 0 };
  let state = { given: [], shown: [], sure: null };
  const doc = () => ({ object: context.doc().object, result: context.doc().result });

  const number = h("input", { type: "number", min: 0, max: count - 1, value: 0, "aria-label": "Category to paint with", on: { input: () => choose(Number(number.value)) } });
  const eraser = button("Erase", () => choose(OPEN), { icon: "eraser", title: "Open cells", class: "tool", pressed: false });
  const swatches = count <= SWATCHES ? Array.from({ length: count }, (_, i) => {
    const swatch = button(String(i), () => choose(i), { class: "swatch", pressed: i === 0, title: `Category ${i}` });
    swatch.style.setProperty("--swatch", hue(i, count));
    return swatch;
  }) : [];

  function choose(chosen) {
    if (!(chosen >= OPEN && chosen < count)) return;
    value = chosen;
    eraser.setAttribute("aria-pressed", String(value === OPEN));
    swatches.forEach((swatch, i) => swatch.setAttribute("aria-pressed", String(i === value)));
    if (value !== OPEN) number.value = value;
  }

  const grid = cellGrid({
    rows, columns, label: `Grid of ${rows} by ${columns} cells with ${count} categories. Arrow keys move, Enter paints.`, announce: context.announce,
    paint: paintCell,
    describe: (cell) => (state.shown[cell] === OPEN ? "open" : `${state.shown[cell]}, ${state.given[cell] !== OPEN ? "given" : "drawn"}`),
    brush(cells, isFirst) {
      const hit = (index) => cells.includes(index);
      (isFirst ? context.commit : context.amend)(value === OPEN ? openUp(doc(), hit) : put(doc(), value, hit));
    },
    key(event, cell) {
      if (event.key === "Delete" || event.key === "Backspace") context.commit(openUp(doc(), (index) => index === cell));
      else if (/^\d$/.test(event.key)) type(event.key);
      else return false;
      return true;
    },
  });

  function type(digit) {
    const now = performance.now();
    const digits = now - typed.time < QUICK ? typed.digits + digit : digit;
    typed = { digits: Number(digits) < count ? digits : digit, time: now };
    choose(Number(typed.digits));
    context.announce(`category ${value}`);
  }

  function paintCell(canvas, cell, { x, y, size }, colours) {
    const shown = state.shown[cell];
    if (shown === undefined) return;
    canvas.fillStyle = colours.open;
    canvas.fillRect(x + 0.5, y + 0.5, size - 1, size - 1);
    if (shown === OPEN) return;
    const isGiven = state.given[cell] !== OPEN;
    canvas.globalAlpha = isGiven ? 1 : 0.1 + 0.7 * (state.sure?.[cell] ?? 1);
    canvas.fillStyle = hue(shown, count);
    canvas.fillRect(x + 0.5, y + 0.5, size - 1, size - 1);
    canvas.globalAlpha = 1;
    if (isGiven && size > 9) {
      canvas.fillStyle = "#fff";
      canvas.beginPath();
      canvas.arc(x + size / 2, y + size / 2, Math.min(3, size / 8), 0, 7);
      canvas.fill();
    }
  }

  return {
    element: h("div", { class: "array-editor" }, grid.element),
    tools: h("div", { class: "tools", role: "toolbar", "aria-label": "Categories" }, eraser, h("div", { class: "swatches" }, ...swatches), swatches.length === 0 && number),
    fillLabel, plan: (action, document_) => plan(action, document_, model, null), theme: grid.repaint,
    show({ object, result, frame }) {
      const open = frame && flat(frame.open);
      state = {
        given: flat(object), shown: flat(merged(object, frame ? frame.object : result)),
        sure: frame && flat(frame.sure).map((sure, i) => (open[i] ? sure : 1)),
      };
      grid.repaint();
    },
    thumbnail: (object, { against }) => mosaic(object, against, columns, count),
  };
}

/** A small picture of an object in rows of `columns` cells; grey where it is as `against` is. */
export function mosaic(object, against, columns, count) {
  const scale = Math.max(1, Math.min(8, Math.floor(160 / columns)));
  const [values, other] = [flat(object), against && flat(against)];
  const canvas = h("canvas", { class: "thumbnail pixels", "aria-hidden": "true" });
  const paint = sharp(canvas, columns * scale, Math.ceil(values.length / columns) * scale);
  values.forEach((category, i) => {
    paint.fillStyle = other && other[i] === category ? colour("--bar-grey") : hue(category, count);
    paint.fillRect((i % columns) * scale, Math.floor(i / columns) * scale, scale, scale);
  });
  return canvas;
}
