/**
 * The document with its history.
 *
 * @typedef {Object} Doc
 * @property {Thing} object what is given, with holes
 * @property {Thing|null} result the variant that was adopted, perhaps edited since
 * @property {Drawn|null} drawn the last draw
 * @property {number} chosen which of its variants was adopted
 *
 * @typedef {Object} Drawn
 * @property {Thing[]} objects the variants
 * @property {Object} request what was asked for: object, steps, seed, ...
 * @property {Thing} kept what was given on the page at that time
 * @property {number} seconds
 * @property {string[]} notes
 * @property {Object} [shares] of tables
 */

const MOST = 200;

export class Store {
  #past = [];
  #future = [];
  #before = []; // the future that the last step ended
  #doc = null;
  #listeners = [];

  /** @returns {Doc} */
  get doc() { return this.#doc; }
  get canUndo() { return this.#past.length > 0; }
  get canRedo() { return this.#future.length > 0; }

  subscribe(listener) { this.#listeners.push(listener); }

  /** A new document without history. */
  reset(doc) {
    this.#past = [];
    this.#future = [];
    this.#set(doc);
  }

  /** Change parts of the document; the step can be undone. */
  commit(change) {
    this.#past.push(this.#doc);
    if (this.#past.length > MOST) this.#past.shift();
    this.#before = this.#future;
    this.#future = [];
    this.#set({ ...this.#doc, ...change });
  }

  /** Change parts of the document as a part of the last step, such as one more note of a line. */
  amend(change) { this.#set({ ...this.#doc, ...change }); }

  /** Forget the step that was made last, as if it had never been. */
  forget() {
    this.#future = this.#before;
    this.#set(this.#past.pop());
  }

  undo() { this.#step(this.#past, this.#future); }
  redo() { this.#step(this.#future, this.#past); }

  #step(from, to) {
    if (from.length === 0) return;
    to.push(this.#doc);
    this.#set(from.pop());
  }

  #set(doc) {
    this.#doc = doc;
    this.#listeners.forEach((listener) => listener(doc));
  }
}
