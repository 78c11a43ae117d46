/** The variants of the last draw, side by side. */

import { button, h } from "./dom.js";
import { equal } from "./objects.js";

const letter = (index) => (index < 26 ? String.fromCharCode(65 + index) : String(index + 1));

export class Variants {
  #compare = false;
  #last = null;

  /** @param {HTMLElement} element @param {{adopt: (index: number) => void, play: (index: number) => void}} actions */
  constructor(element, { adopt, play }) {
    Object.assign(this, { element, adopt, play });
  }

  clear() {
    this.element.hidden = true;
    this.#last = null;
  }

  /**
   * @param {import("./store.js").Drawn|null} drawn
   * @param {number} chosen
   * @param {Object} editor makes the thumbnails
   * @param {number|null} playing which one sounds
   */
  show(drawn, chosen, editor, playing) {
    const state = { drawn, chosen, editor, playing, compare: this.#compare };
    if (this.#last && Object.keys(state).every((key) => this.#last[key] === state[key])) return;
    this.#last = state;
    this.element.hidden = !drawn || drawn.objects.length < 2 || Boolean(editor.ownsVariants);
    if (this.element.hidden) return;
    const compare = !editor.plainVariants && button("Compare", () => { this.#compare = !this.#compare; this.show(drawn, chosen, editor, playing); },
      { icon: "compare", pressed: this.#compare, title: "Show in grey what the variants share with the chosen one" });
    const different = new Set(drawn.objects.map((object) => JSON.stringify(object))).size;
    const focused = [...this.element.querySelectorAll("button")].indexOf(document.activeElement);
    const cards = drawn.objects.map((object, index) => this.#card(drawn, object, index, chosen, editor, playing));
    this.element.replaceChildren(
      h("div", { class: "row between" }, h("h2", { text: different === 1 ? "Variants, all the same" : "Variants" }), compare),
      h("div", { class: `thumbnails ${editor.wideVariants ? "wide" : ""}` }, ...cards));
    this.element.querySelectorAll("button")[focused]?.focus({ preventScroll: true });
  }

  #card(drawn, object, index, chosen, editor, playing) {
    const isChosen = index === chosen;
    const against = this.#compare && !isChosen ? drawn.objects[chosen] : null;
    const same = against && equal(object, against) ? ", the same as the chosen one" : "";
    const card = h("div", { class: `variant ${isChosen ? "chosen" : ""}` },
      h("button", { type: "button", class: "adopt", "aria-pressed": String(isChosen), "aria-label": `Variant ${letter(index)}${same}`, on: { click: () => this.adopt(index) } },
        editor.thumbnail(object, { against, request: drawn.request.object }), h("span", { class: "letter", text: letter(index) })));
    if (editor.notes) {
      const play = button("", () => this.play(index), { icon: playing === index ? "stop" : "play", title: playing === index ? "Stop" : `Play variant ${letter(index)}`, class: "play" });
      card.append(play);
    }
    return card;
  }
}
