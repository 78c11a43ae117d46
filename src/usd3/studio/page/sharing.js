/** Links: the address bar has the link of what is seen, and a link is drawn again. */

import { fragmentOf } from "./link.js";
import { equal, shapeOf } from "./objects.js";
import { report } from "./report.js";

const REMEMBER = 250; // milliseconds until the address bar has the link of what is seen

export class Sharing {
  #timer = 0;

  /** @param {import("./studio.js").Studio} studio */
  constructor(studio) { this.studio = studio; }

  /** The fragment that reproduces what is seen: by drawing again, or with the result in it where it was edited. */
  get fragment() {
    const { store, model, settings, editor, transport } = this.studio;
    const { object, result, drawn, chosen } = store.doc;
    const base = { model: model.model, ...settings.values, chosen, tempo: editor.notes ? transport.beats : null };
    const fresh = drawn && equal(result, drawn.objects[chosen]) && equal(object, drawn.kept);
    if (fresh) return fragmentOf({ ...base, ...drawn.request, draw: true });
    return fragmentOf({ ...base, object: equal(object, model.example) ? null : object, shown: result, draw: false });
  }

  /** Keep the link in the address bar, a moment later. */
  remember() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (this.studio.isOpen && this.studio.editor) history.replaceState(null, "", this.fragment);
    }, REMEMBER);
  }

  /** Copy the link. */
  async copy() {
    history.replaceState(null, "", this.fragment);
    await report.guard(async () => {
      await navigator.clipboard.writeText(location.href);
      report.status("The link is copied. It draws the same result again.");
    }, "The browser does not allow copying; the link is in the address bar.");
  }

  /** Do what a link says, in its model, which is open. */
  async restore(state) {
    const { store, model, settings, editor, transport } = this.studio;
    settings.values = state;
    if (state.tempo && editor.notes) transport.beats = state.tempo;
    const object = state.object ?? model.example;
    if (!equal(formOf(object), formOf(model.example))) throw new Error("The object of this link is not one of this model.");
    store.reset({ object, result: state.shown ?? null, drawn: null, chosen: 0 });
    editor.reveal?.();
    if (!state.draw) return;
    const wish = this.studio.wish(object);
    if (state.where) wish.where = state.where;
    const done = await this.studio.run(wish, object);
    if (!done) return;
    const { chosen } = state;
    if (chosen > 0 && chosen < done.objects.length) store.amend({ result: done.objects[chosen], chosen });
    report.status([`Drawn again from the link in ${done.seconds.toFixed(1)} s`, ...(done.notes ?? [])].join(" · "));
  }
}

/** What two objects of one model have in common: the shape, or the columns. */
function formOf(object) {
  if (Array.isArray(object)) return shapeOf(object);
  return typeof object === "string" ? "text" : Object.keys(object).sort();
}
