/** Requests to the server: JSON, server-sent events, and one request at a time for each panel. */

import { emit } from "./dom.js";

export const getToken = () => sessionStorage.getItem("layerwise-token");
export const setToken = (text) => sessionStorage.setItem("layerwise-token", text);
const makeError = ({ message, position = null }, status) => Object.assign(new Error(message), { position, status });

function reportLoss(error, signal) {
  if (signal?.aborted) throw error;
  emit("lost");
  throw new Error("The server cannot be reached.");
}

async function send(path, body, signal) {
  const headers = { "Content-Type": "application/json", ...(getToken() && { Authorization: `Bearer ${getToken()}` }) };
  const content = body && { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(path, { headers, signal, ...content }).catch((error) => reportLoss(error, signal));
  if (response.ok) return response;
  if (response.status === 401) emit("token");
  const { error } = await response.json().catch(() => ({}));
  throw makeError(error ?? { message: `The server answered with status ${response.status}.` }, response.status);
}

export async function call(path, body) {
  const { error, ...answer } = await (await send(path, body)).json();
  if (error) throw makeError(error, 400);
  return answer;
}

/** Yield the events of a response. No event follows once the signal is aborted. */
export async function* stream(path, body, signal) {
  const reader = (await send(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let rest = ""; ; ) {
    const { value, done } = await reader.read().catch((error) => reportLoss(error, signal));
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts.filter((each) => each.startsWith("data: {"))) {
      if (signal?.aborted) return;
      const event = JSON.parse(part.slice(6));
      if (event.error) throw makeError(event.error, 500);
      yield event;
    }
  }
}

/** Return a function that runs one `work(signal)` at a time: a newer one aborts the older, which then ends silently. */
export function latest() {
  let current = null;
  return Object.assign(async (work) => {
    current?.abort();
    const { signal } = (current = new AbortController());
    await work(signal).catch((error) => signal.aborted || Promise.reject(error));
    return !signal.aborted;
  }, { cancel: () => current?.abort() });
}
