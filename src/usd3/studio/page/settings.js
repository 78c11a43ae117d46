/** The settings of a draw: steps, sampler, temperature, guidance, seed, and the labels that a model knows. */

import { button, h } from "./dom.js";

const SEEDS = 2 ** 31;

/** @returns {number} a random seed */
export const newSeed = () => crypto.getRandomValues(new Uint32Array(1))[0] % SEEDS;

export class Settings {
  /** @param {HTMLFormElement} form @param {() => void} changed */
  constructor(form, changed) {
    this.form = form;
    this.changed = changed;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => { this.#explain(); changed(); });
  }

  /** Show the settings that a model has. */
  fill(model) {
    this.model = model;
    this.fresh = button("", () => this.#setFresh(this.fresh.getAttribute("aria-pressed") !== "true"),
      { icon: "dice", title: "A new seed for every draw", pressed: true });
    this.summary = h("p", { class: "hint", id: "sampler-summary" });
    const seed = number("seed", { value: newSeed(), min: 0, max: SEEDS - 1, step: 1 });
    seed.addEventListener("input", () => this.#setFresh(false));
    const rows = [
      field(model.editor.name === "table" ? "Rows" : "Variants", "How many are drawn at once", number("num", { value: model.num, min: 1, max: model.most_num, step: 1 })),
      field("Steps", "More steps take longer and are more careful", number("steps", { value: model.steps, min: 1, max: model.most_steps, step: 1 })),
      field("Sampler", null, h("select", { name: "sampler", "aria-describedby": "sampler-summary" },
        ...model.samplers.map(({ name }) => h("option", { value: name, text: name, selected: name === model.sampler }))), this.summary),
      ...(model.tempered ? [
        slider("Temperature", "temperature", { min: 0.1, max: 2, step: 0.05, value: 1 }, "Below 1 is safer, above 1 is bolder"),
        slider("Top p", "top_p", { min: 0.05, max: 1, step: 0.05, value: 1 }, "Only the likeliest choices, up to this share"),
      ] : []),
      ...(model.guided ? [slider("Guidance", "guidance", { min: 0, max: 5, step: 0.1, value: 1 }, Object.keys(model.labels ?? {}).length ? "How strongly the label is followed" : "How strongly what is given is followed")] : []),
      ...Object.entries(model.labels ?? {}).map(([name, values]) => field(name, null, h("select", { name: `label:${name}` },
        h("option", { value: "", text: "any" }), ...values.map((value) => h("option", { value, text: value }))))),
      field("Seed", "The same seed and settings draw the same result", h("div", { class: "row" }, seed, this.fresh)),
    ];
    this.form.replaceChildren(...rows);
    this.#explain();
  }

  /** What to send; the numbers as numbers. */
  get values() {
    const get = (name) => this.form.elements[name]?.value;
    const where = Object.fromEntries(Object.keys(this.model.labels ?? {}).map((name) => [name, get(`label:${name}`)]).filter(([, value]) => value));
    return {
      num: Number(get("num")), steps: Number(get("steps")), sampler: get("sampler"), seed: Number(get("seed")),
      temperature: this.model.tempered ? Number(get("temperature")) : null, top_p: this.model.tempered ? Number(get("top_p")) : null,
      guidance: this.model.guided ? Number(get("guidance")) : null,
      where: Object.keys(where).length ? where : null,
    };
  }

  /** Set what a link or a draw had. */
  set values(values) {
    for (const [name, value] of Object.entries(values)) {
      const element = this.form.elements[name];
      if (element && value !== null && value !== undefined) element.value = value;
    }
    Object.entries(typeof values.where === "object" ? values.where ?? {} : {}).forEach(([name, value]) => {
      const element = this.form.elements[`label:${name}`];
      if (element) element.value = value;
    });
    if (values.seed !== undefined) this.#setFresh(false);
    this.#explain();
  }

  /** A new seed, where the user wants one for every draw. */
  roll() {
    if (this.fresh.getAttribute("aria-pressed") === "true") this.form.elements.seed.value = newSeed();
  }

  /** One line about the first field that is not valid; null where all are. */
  get problem() {
    const wrong = [...this.form.elements].find((element) => element.name && !element.checkValidity());
    if (!wrong) return null;
    wrong.focus();
    return `${wrong.labels[0]?.textContent ?? wrong.name}: expected a whole number from ${wrong.min} to ${wrong.max}, got ${wrong.value || "nothing"}`;
  }

  #setFresh(fresh) {
    this.fresh.setAttribute("aria-pressed", String(fresh));
    this.fresh.title = fresh ? "A new seed for every draw: on" : "A new seed for every draw: off";
    this.fresh.setAttribute("aria-label", this.fresh.title);
  }

  #explain() {
    const { elements } = this.form;
    this.summary.textContent = this.model.samplers.find(({ name }) => name === elements.sampler.value)?.summary ?? "";
    this.form.querySelectorAll("output").forEach((output) => { output.textContent = Number(elements[output.htmlFor.value].value).toFixed(2); });
  }
}

const number = (name, limits) => h("input", { type: "number", name, id: name, inputmode: "numeric", required: true, ...limits });

function field(title, hint, control, ...more) {
  const input = control.matches("input, select") ? control : control.querySelector("input");
  input.id ||= input.name;
  return h("div", { class: "field" }, h("label", { for: input.id, text: title }), control, hint && h("p", { class: "hint", text: hint }), ...more);
}

function slider(title, name, limits, hint) {
  return h("div", { class: "field" },
    h("div", { class: "row between" }, h("label", { for: name, text: title }), h("output", { for: name, "aria-live": "off" })),
    h("input", { type: "range", name, id: name, ...limits }), h("p", { class: "hint", text: hint }));
}
