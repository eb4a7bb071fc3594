/** Requests to the server: JSON, server-sent events, and one request at a time for each panel. */

const KEY = "layerwise-token";

export const connection = new EventTarget(); // "lost" when the server cannot be reached, "token" when it needs a token

export class ServerError extends Error {
  constructor(error, status) {
    super(error.message);
    this.position = error.position ?? null;
    this.status = status;
  }
}

export const setToken = (token) => sessionStorage.setItem(KEY, token);
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

function reportLoss(error, signal) {
  if (!signal?.aborted) connection.dispatchEvent(new Event("lost"));
  throw error;
}

async function send(path, body, signal) {
  const headers = hasToken() ? { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` } : {};
  const post = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const response = await fetch(path, { headers, signal, cache: "no-store", ...post })
    .catch((error) => reportLoss(error, signal));
  if (response.ok) return response;
  if (response.status === 401) connection.dispatchEvent(new Event("token"));
  const answer = await response.json().catch(() => ({}));
  throw new ServerError(answer.error ?? { message: `The server answered with status ${response.status}.` }, response.status);
}

export const call = async (path, body, signal) => (await send(path, body, signal)).json();

/** Yield the events of a response. No event follows once the signal is aborted. */
export async function* stream(path, body, signal) {
  const response = await send(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch((error) => reportLoss(error, signal));
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      if (signal?.aborted) return;
      if (!part.startsWith("data: ") || part === "data: [DONE]") continue;
      const event = JSON.parse(part.slice(6));
      if (event.error) throw new ServerError(event.error, response.status);
      yield event;
    }
  }
}

/** Return a function that runs one `work(signal)` at a time: a newer one aborts the older, which then ends silently. */
export function latest() {
  let current = null;
  const run = async (work) => {
    run.cancel();
    const own = (current = new AbortController());
    try {
      await work(own.signal);
      return !own.signal.aborted;
    } catch (error) {
      if (own.signal.aborted) return false;
      throw error;
    }
  };
  run.cancel = () => current?.abort();
  return run;
}
