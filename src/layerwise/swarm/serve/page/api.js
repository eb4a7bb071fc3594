/** Requests to the server: JSON, server-sent events, and one request at a time for each panel. */

const KEY = "layerwise-token";
export const setToken = (token) => sessionStorage.setItem(KEY, token);
export const hasToken = () => sessionStorage.getItem(KEY) !== null;

/** Sends "lost" when the server cannot be reached, and "token" when it requires another token. */
export const connection = new EventTarget();

const serverError = ({ message, position = null }, status) => Object.assign(new Error(message), { position, status });

function reportLoss(error, signal) {
  if (!signal?.aborted) connection.dispatchEvent(new Event("lost"));
  throw error;
}

async function send(path, body, signal) {
  const headers = hasToken() ? { Authorization: `Bearer ${sessionStorage.getItem(KEY)}` } : {};
  if (body) headers["Content-Type"] = "application/json";
  const options = { headers, signal, cache: "no-store", method: body ? "POST" : "GET", body: body && JSON.stringify(body) };
  const response = await fetch(path, options).catch((error) => reportLoss(error, signal));
  if (response.ok) return response;
  if (response.status === 401) connection.dispatchEvent(new Event("token"));
  const { error } = await response.json().catch(() => ({}));
  throw serverError(error ?? { message: `The server answered with status ${response.status}.` }, response.status);
}

export async function call(path, body, signal) {
  const answer = await (await send(path, body, signal)).json();
  if (answer.error) throw serverError(answer.error, 400);
  return answer;
}

/** Yield the events of a response. No event follows once the signal is aborted. */
export async function* stream(path, body, signal) {
  const response = await send(path, body, signal);
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read().catch((error) => reportLoss(error, signal));
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts.filter((each) => each.startsWith("data: {"))) {
      if (signal?.aborted) return;
      const event = JSON.parse(part.slice(6));
      if (event.error) throw serverError(event.error, response.status);
      yield event;
    }
  }
}

/** Return a function that runs one `work(signal)` at a time: a newer one aborts the older, which then ends silently. */
export function latest() {
  let current = null;
  const run = async (work) => {
    run.cancel();
    const { signal } = (current = new AbortController());
    await work(signal).catch((error) => {
      if (!signal.aborted) throw error;
    });
    return !signal.aborted;
  };
  run.cancel = () => current?.abort();
  return run;
}
