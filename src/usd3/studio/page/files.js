/** Examples, and files that are loaded and saved. */

import * as api from "./api.js";
import { button, chooseFile, download, h } from "./dom.js";
import { hasOpen } from "./objects.js";
import { report } from "./report.js";

export class Files {
  #examples = 0;

  /** @param {HTMLElement} element @param {import("./studio.js").Studio} studio */
  constructor(element, studio) { Object.assign(this, { element, studio }); }

  /** Show what the open model has: examples, endings that it reads and writes. */
  show({ prompts = [], reads = [], writes = [], example }) {
    this.#examples = 0;
    const usual = writes.find((ending) => reads.includes(ending)) ?? writes[0];
    this.format = h("select", { "aria-label": "Format to save" }, ...writes.map((ending) => h("option", { value: ending, text: ending, selected: ending === usual })));
    this.element.replaceChildren(...[
      prompts.length > 0 && button("Example", () => this.#put(prompts[this.#examples++ % prompts.length], "example put in"), { icon: "star", title: "Put in an example" }),
      reads.length > 0 && button("Load", () => this.#choose(reads), { icon: "open", title: `Load a file: ${reads.join(", ")}`, id: "load" }),
      writes.length > 0 && h("span", { class: "joined" }, button("Save", () => this.save(this.format.value), { icon: "save", title: "Save what is shown", id: "save" }), this.format),
      button("Clear", () => this.#put(example, "cleared"), { icon: "clear", title: "Begin anew" }),
    ].filter(Boolean));
  }

  /** Take an object from a file of the user. */
  async load(file) {
    await report.guard(async () => {
      const { object, notes } = await api.read(this.studio.model.model, file);
      report.clear();
      this.#put(object, "loaded");
      report.status([`Loaded ${file.name}`, ...(notes ?? [])].join(" · "));
    });
  }

  /** Save what is shown; of a table all drawn rows. */
  async save(format) {
    const { editor, model, shown, store, transport } = this.studio;
    await report.guard(async () => {
      const { drawn } = store.doc;
      if (!this.studio.hasBegun && !drawn) throw new Error("There is nothing to save yet.");
      const objects = editor.ownsVariants && drawn ? drawn.objects : [editor.complete?.(shown) ?? shown];
      if (objects.some((object) => Array.isArray(object) && hasOpen(object))) throw new Error("Something is still open: fill it first, then save.");
      const { blob, name } = await api.write(model.model, objects, format, editor.notes ? transport.beats : null);
      download(blob, name);
      report.clear();
      report.status(`Saved ${name}`);
    });
  }

  async #choose(endings) {
    const file = await chooseFile(endings);
    if (file) await this.load(file);
  }

  #put(object, said) {
    this.studio.begin(object);
    report.announce(said);
  }
}
