/** The choice of a model: cards of those there are, and a field for a folder. */

import { h, hasIcon, icon } from "./dom.js";

/** Fill the cards; `open(name, card)` opens a model. */
export function showHome({ cards, form }, models, open) {
  cards.replaceChildren(...models.map(({ name, title, kind, description, packaged }) =>
    h("div", { role: "listitem" },
      h("button", { type: "button", class: "model", data: { model: name, kind }, on: { click: (event) => open(name, event.currentTarget) } },
        h("span", { class: "emblem", "aria-hidden": "true" }, icon(hasIcon(kind) ? kind : "array")),
        h("span", { class: "model-text" }, h("strong", { text: title }), h("span", { text: description }),
          !packaged && h("small", { text: name }))))));
  form.onsubmit = (event) => {
    event.preventDefault();
    open(form.elements.path.value.trim(), form.querySelector("button"));
  };
}
