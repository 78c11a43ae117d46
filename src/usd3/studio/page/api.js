/** The requests to the server. Every failure is an `ApiError` with one clear line. */

export class ApiError extends Error {}

const token = new URLSearchParams(location.search).get("token") ?? "";
const page = Math.random().toString(36).slice(2) + Math.random().toString(36).slice(2);
const headers = { "X-USD3-Token": token, "X-USD3-Page": page };

async function request(path, options = {}) {
  let response;
  try {
    response = await fetch(`api/${path}`, { ...options, headers: { ...headers, ...options.headers }, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server does not answer. Is `usd3 studio` still running?");
  }
  if (!response.ok) throw new ApiError(await errorLine(response));
  return response;
}

async function errorLine(response) {
  try {
    return (await response.json()).error ?? `The server answered ${response.status}.`;
  } catch {
    return `The server answered ${response.status}.`;
  }
}

const post = (path, body, signal) =>
  request(path, { method: "POST", body: JSON.stringify(body), headers: { "Content-Type": "application/json" }, signal });

export const models = async () => (await request("models")).json();
export const open = async (model) => (await post("open", { model })).json();
export const pictures = async (model, objects) => (await (await post("picture", { model, objects })).json()).pictures;

/** The object in a file of the user. */
export async function read(model, file) {
  const query = new URLSearchParams({ model, name: file.name });
  return (await request(`read?${query}`, { method: "POST", body: file })).json();
}

/** The bytes of a file with these objects, and its name. */
export async function write(model, objects, format, tempo) {
  const response = await post("write", { model, objects, format, ...(tempo ? { tempo } : {}) });
  const name = /filename="?([^";]+)"?/.exec(response.headers.get("Content-Disposition") ?? "")?.[1];
  return { blob: await response.blob(), name: name ?? `${model}${format}` };
}

/**
 * Draw objects. Calls `listener(name, data)` for each event before the last, and returns the data of `done`.
 * @param {Object} body what to draw
 * @param {(name: string, data: Object) => void} listener
 * @param {AbortSignal} signal ends the work
 */
export async function draw(body, listener, signal) {
  const response = await post("draw", body, signal);
  const events = parse(response.body.pipeThrough(new TextDecoderStream()).getReader());
  try {
    for await (const { name, data } of events) {
      if (name === "error") throw new ApiError(data.error);
      if (name === "done") return data;
      listener(name, data);
    }
  } catch (error) {
    if (error instanceof ApiError || error.name === "AbortError") throw error;
    throw new ApiError("The connection to the server broke. Is `usd3 studio` still running?");
  }
  throw new ApiError("The server ended the drawing without a result.");
}

/** The server-sent events of a stream, one after the other. */
async function* parse(reader) {
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split("\n\n");
    text = blocks.pop();
    for (const block of blocks) {
      const name = /^event: ?(.*)$/m.exec(block)?.[1];
      const data = [...block.matchAll(/^data: ?(.*)$/gm)].map((match) => match[1]).join("\n");
      if (name) yield { name, data: JSON.parse(data) };
    }
  }
}
