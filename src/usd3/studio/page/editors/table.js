/** The editor of tables: a form for one row. What is empty is drawn many times, and its distribution is shown. */

import { h } from "../dom.js";

export const labels = { fill: "Fill the empty fields", generate: "Draw new rows" };
export const keys = [["30..40", "in a field of numbers or dates: a range, as a condition"], ["nurse|clerk", "one of several values, as a condition"]];

const SHOWN = 100; // rows
const isCondition = (text) => /\.\.|\|/.test(text);

/** @param {Object} context see studio.js */
export function create(context) {
  const { columns } = context.model.editor;
  const fields = new Map(columns.map((column) => [column.name, field(column, change)]));
  const conditions = new Map(); // typed ranges, by column: they are no part of an object

  const form = h("div", { class: "form-grid" }, ...columns.map(({ name }) => h("div", { class: "field" }, h("label", { for: `column-${name}`, text: name }), fields.get(name).element)));
  const charts = h("div", { class: "charts" });
  const rows = h("div", { class: "rows", tabindex: 0, role: "region", "aria-label": "Drawn rows" });

  function change(name, text) {
    const value = text.trim();
    if (value && isCondition(value)) conditions.set(name, value);
    else conditions.delete(name);
    context.commit({ object: { ...context.doc().object, [name]: value && !isCondition(value) ? value : null } });
  }

  return {
    element: h("div", { class: "table-editor" }, h("p", { class: "caption", text: "One row. Leave empty what is to be drawn; 30..40 or nurse|clerk are conditions." }), form),
    results: h("div", { class: "table-results" }, charts, rows), tools: null, ownsVariants: true, one: "row",
    plan(action, { object }) {
      const empty = context.model.example;
      const where = conditions.size && action !== "generate" ? [...conditions] : null;
      return action === "generate" ? { send: empty, keep: empty } : { send: object, keep: object, where };
    },
    show({ object, frame, drawn }) {
      const asked = conditionsOf(drawn?.request.where);
      for (const { name } of columns) {
        if (object[name] !== null) conditions.delete(name);
        else if (asked[name] && !conditions.has(name) && document.activeElement !== fields.get(name).input) conditions.set(name, asked[name]);
        const guess = frame && object[name] === null ? frame.object[name] : null;
        const index = columns.findIndex((column) => column.name === name);
        fields.get(name).show(object[name] ?? conditions.get(name) ?? "", guess, frame ? frame.sure[index] : 1);
      }
      charts.hidden = rows.hidden = !drawn || frame !== null;
      if (drawn && !frame && rows.drawn !== drawn) {
        rows.drawn = drawn;
        charts.replaceChildren(...Object.entries(drawn.shares ?? {}).map(([name, shares]) => (isOrdered(columns, name) ? histogram : chart)(name, shares)));
        rows.replaceChildren(table(columns, drawn));
      }
    },
    thumbnail: () => h("span"),
  };
}

/** The conditions in the text that was sent, by column. */
const conditionsOf = (where) => (typeof where === "string" ? Object.fromEntries(where.split(",").map((part) => part.split("="))) : {});

/** The field of a column: a choice of values, or a text with the ends of the numbers as a hint. */
function field({ name, kind, values, low, high, more }, change) {
  const id = `column-${name}`;
  const hint = values === null && low !== null ? `empty · ${tidy(`${low}..${high}`)}` : "empty";
  const isChoice = values !== null && values.length <= 200 && !more;
  const list = values && h("datalist", { id: `${id}-values` }, ...values.map((value) => h("option", { value })));
  const input = h("input", {
    id, name, placeholder: hint, list: list ? list.id : null, autocomplete: "off", spellcheck: "false",
    inputmode: kind === "number" ? "text" : null, title: isChoice ? values.slice(0, 12).join(", ") : null,
  });
  input.addEventListener("change", () => change(name, input.value));
  const guess = h("span", { class: "guess-text", "aria-hidden": "true" });
  return {
    input, element: h("div", { class: "field-frame" }, input, guess, list),
    show(text, guessed, sure) {
      if (document.activeElement !== input || text !== "") input.value = text;
      guess.textContent = kind === "number" ? tidy(guessed ?? "") : guessed ?? "";
      guess.style.setProperty("--sure", Math.max(sure, 0.1).toFixed(2));
      input.classList.toggle("guessing", guessed !== null);
    },
  };
}

const isOrdered = (columns, name) => ["number", "date"].includes(columns.find((column) => column.name === name).kind);

/** The label of a group, such as "17–20" for "17.0..20.0". */
const tidy = (label) => label.split("..").map((end) => end.replace(/\.0+$/, "")).join("–");

/** How often values of neighbouring groups were drawn, as upright bars in their order. */
function histogram(name, shares) {
  const most = Math.max(...shares.map(([, share]) => share), 1e-9);
  const bars = shares.map(([value, share]) => {
    const bar = h("span", { class: "upright", title: `${tidy(value)}: ${percent(share)}` }, h("i"), h("span", { class: "hidden", text: `${tidy(value)}: ${percent(share)}` }));
    bar.firstElementChild.style.height = `${(share / most) * 100}%`;
    return h("li", {}, bar);
  });
  const [first, last] = [shares[0]?.[0] ?? "", shares.at(-1)?.[0] ?? ""];
  const [likely] = shares.reduce((best, pair) => (pair[1] > best[1] ? pair : best), ["", 0]);
  return h("figure", { class: "chart" }, h("figcaption", {}, name, " ", h("small", { text: `most often ${tidy(likely)}` })), h("ol", { class: "histogram" }, ...bars),
    h("div", { class: "row between axis", "aria-hidden": "true" }, h("span", { text: tidy(first).split("–")[0] }), h("span", { text: tidy(last).split("–").at(-1) })));
}

const percent = (share) => `${(share * 100).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;

/** How often each value was drawn, as bars. */
function chart(name, shares) {
  const most = Math.max(...shares.map(([, share]) => share), 1e-9);
  const bars = shares.map(([value, share]) => {
    const bar = h("span", { class: "bar" });
    bar.style.width = `${(share / most) * 100}%`;
    return h("li", {}, h("span", { class: "value", text: value, title: value }), h("span", { class: "track" }, bar), h("span", { class: "share", text: percent(share) }));
  });
  return h("figure", { class: "chart" }, h("figcaption", { text: name }), h("ol", {}, ...bars));
}

function table(columns, { objects, request }) {
  const head = h("tr", {}, ...columns.map(({ name }) => h("th", { scope: "col", text: name })));
  const body = objects.slice(0, SHOWN).map((row) => h("tr", {}, ...columns.map(({ name }) => h("td", { class: request.object[name] === null ? "filled" : "", text: row[name] ?? "" }))));
  const rest = objects.length - SHOWN;
  return h("table", {}, h("caption", { text: rest > 0 ? `The first ${SHOWN} of ${objects.length} rows` : `${objects.length} rows` }), h("thead", {}, head), h("tbody", {}, ...body));
}
