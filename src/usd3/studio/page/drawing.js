/** One draw at a time: asks the server, reports on the way, and can be stopped. */

import * as api from "./api.js";

export class Drawing {
  #controller = null;

  get busy() { return this.#controller !== null; }

  /** End the work; the server stops when the connection closes. */
  stop() {
    this.#controller?.abort();
    this.#controller = null;
  }

  /**
   * Draw, and end what was being drawn.
   * @param {Object} body the request
   * @param {{progress: (text: string, share: number|null) => void, frame: (frame: Object) => void,
   *   first: (object: Thing) => void}} listener `first` is called where other objects follow
   * @returns {Promise<Object|null>} the data of `done`; null where it was stopped
   */
  async run(body, listener) {
    this.stop();
    const controller = new AbortController();
    this.#controller = controller;
    try {
      return await api.draw(body, (name, data) => {
        if (controller.signal.aborted) return;
        if (name === "queued") listener.progress(data.before ? `Waiting for ${data.before} before this one` : "Starting", null);
        else if (name === "progress") listener.progress(`Step ${data.step} of ${data.steps}`, data.step / data.steps);
        else if (name === "frame") listener.frame(data);
        else if (name === "first") listener.first(data.object);
      }, controller.signal);
    } catch (error) {
      if (controller.signal.aborted) return null;
      throw error;
    } finally {
      if (this.#controller === controller) this.#controller = null;
    }
  }
}
