// The HTTP API of this server, as any client has it.

export class Failed extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

let whenLoggedOut = () => {};
export const onLoggedOut = (call) => (whenLoggedOut = call);

// The header keeps the browser from asking for a password in a window of its own.
const HEADERS = { "lately-page": "1" };

export async function get(path, signal) {
  let response;
  try {
    response = await fetch(path, { headers: HEADERS, signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failed(0, "the server does not answer");
  }
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  if (response.status === 401) whenLoggedOut();
  throw new Failed(response.status, problem.detail ?? `the server answered ${response.status}`);
}

export const session = async () => {
  const response = await fetch("/v1/session", { headers: HEADERS, cache: "no-store" });
  if (response.status === 401) return null;
  if (!response.ok) throw new Failed(response.status, "the server does not say who may see what");
  return response.json();
};

export async function logIn(user, password) {
  const body = JSON.stringify({ user, password });
  const headers = { ...HEADERS, "content-type": "application/json" };
  const response = await fetch("/v1/session", { method: "POST", headers, body });
  if (response.ok) return;
  const problem = await response.json().catch(() => ({}));
  throw new Failed(response.status, problem.detail ?? "the server does not answer");
}

export const logOut = () => fetch("/v1/session", { method: "DELETE", headers: HEADERS });

// Calls `work` now and again some time after each end, while the view is there and the page is seen.
export function repeat(ms, work, signal) {
  let timer;
  const run = async () => {
    if (!document.hidden) await work().catch((error) => error.name === "AbortError" || console.error(error));
    if (!signal.aborted) timer = setTimeout(run, ms);
  };
  signal.addEventListener("abort", () => clearTimeout(timer));
  run();
}
