/** Requests to the server: JSON, and server-sent events. */

import { emit } from "./dom.js";

const makeError = ({ message, position = null }, status) => Object.assign(new Error(message), { position, status });

function reportLoss(error) {
  if (error.name === "AbortError") throw error;
  emit("lost");
  throw new Error("The server cannot be reached.");
}

async function send(path, body, signal) {
  const { token } = sessionStorage;
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const content = body && { method: "POST", body: JSON.stringify(body) };
  const response = await fetch(path, { headers, signal, ...content }).catch(reportLoss);
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

const streams = {}; // the latest one of each path
export const cancel = (path) => streams[path]?.abort();

/** Yield the events of a response. A newer stream of the same path, or `cancel`, ends it silently. */
export async function* stream(path, body) {
  cancel(path);
  const { signal } = (streams[path] = new AbortController());
  try {
    const reader = (await send(path, body, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
    for (let rest = ""; ; ) {
      const { value, done } = await reader.read().catch(reportLoss);
      if (done) return;
      const parts = (rest + value).split("\n\n");
      rest = parts.pop();
      for (const part of parts.filter((each) => each.startsWith("data: {"))) {
        const event = JSON.parse(part.slice(6));
        if (event.error) throw makeError(event.error, 500);
        if (!signal.aborted) yield event;
      }
    }
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
