// @ts-check
/** What the page knows, as signals, and what changes it. */

import { batch, computed, signal } from "@preact/signals";

import { ApiError, apiUrl, get, post } from "./api.js";
import { Live } from "./live.js";
import { address, documentOf, nextOf, parse } from "./router.js";

/** @import { Status } from "./live.js" */
/** @import { Document, Me } from "./types.js" */

/** @template T @typedef {import("@preact/signals").Signal<T>} Signal */

export const route = signal(parse(location.pathname, location.search));
/** Who looks; null as long as it is not known. */
export const me = /** @type {Signal<Me | null>} */ (signal(null));
/** The document of the view, or of the view before until the new one is there. */
export const shown = /** @type {Signal<{ path: string, document: Document } | null>} */ (
  signal(null)
);
/** Why there is no document. */
export const refusal = /** @type {Signal<ApiError | null>} */ (signal(null));
export const status = /** @type {Signal<Status>} */ (signal("connecting"));
export const retryAt = signal(0);
/** Why the server cannot renew the document, and since when; null if it can. */
export const trouble = /** @type {Signal<{ message: string, since_ms: number } | null>} */ (
  signal(null)
);
/** When the document was last known to be up to date, by the clock of this computer. */
export const heardAt = signal(0);
/** The server's clock. */
export const now = signal(Date.now());
/** What a screen reader says, and others read for a while. */
export const notice = signal("");
/** Whether the list of keys is open. */
export const keysOpen = signal(false);

export const path = computed(() => documentOf(route.value));
/** Whether the rows on the screen belong to other filters than the address. */
export const isLate = computed(() => shown.value !== null && shown.value.path !== path.value);

let clockOffset = 0;
/** @type {Live | null} */
let live = null;
let watched = "";
/** @type {ReturnType<typeof setTimeout> | undefined} */
let noticeTimer;

/** Starts it all: who looks, then the document. */
export function start() {
  setInterval(() => {
    now.value = Date.now() + clockOffset;
  }, 1000);
  addEventListener("popstate", () => arrive());
  document.addEventListener("visibilitychange", () => live?.visibility(document.hidden));
  addEventListener("online", () => live?.retry());
  void loadMe().then(() => watch());
}

/**
 * @param {string} to an address of this site.
 * @param {{ replace?: boolean }} [options] `replace`: without a new entry in the history.
 */
export function navigate(to, { replace = false } = {}) {
  if (to === location.pathname + location.search) {
    return;
  }
  history[replace ? "replaceState" : "pushState"](null, "", to);
  arrive();
}

function arrive() {
  const before = route.value;
  const next = parse(location.pathname, location.search);
  const isOther = before.view !== next.view || before.id !== next.id;
  batch(() => {
    route.value = next;
    if (isOther) {
      shown.value = null;
      scrollTo(0, 0);
    }
  });
  watch();
}

/** Follows the document of the view. */
function watch() {
  const wanted = me.value === null ? "" : path.value;
  if (wanted === watched) {
    return;
  }
  live?.stop();
  live = null;
  watched = wanted;
  refusal.value = null;
  trouble.value = null;
  if (wanted === "") {
    return;
  }
  let wasLost = false;
  live = new Live(apiUrl(wanted), {
    document: (document) => {
      batch(() => {
        shown.value = { path: wanted, document };
        refusal.value = null;
        heardAt.value = Date.now();
      });
    },
    tick: (nowMs) => {
      clockOffset = nowMs - Date.now();
      heardAt.value = Date.now();
    },
    problem: (message) => {
      const since = trouble.value?.since_ms ?? now.value;
      trouble.value = message === "" ? null : { message, since_ms: since };
    },
    status: (next, at) => {
      batch(() => {
        status.value = next;
        retryAt.value = at;
      });
      if (next === "live" && wasLost) {
        // The server may be another one, with another key for its forms.
        void loadMe();
      }
      wasLost = next === "lost" || (wasLost && next !== "live");
    },
    check: () => checkAgain(wanted),
  });
  live.visibility(document.hidden);
}

/**
 * Asks for the document once, because a stream does not say why it was refused.
 *
 * @param {string} wanted
 */
async function checkAgain(wanted) {
  try {
    await get(wanted);
    return true;
  } catch (error) {
    if (!(error instanceof ApiError) || watched !== wanted) {
      return true;
    }
    if (error.status === 401) {
      signInAgain();
      return false;
    }
    const isFinal = error.status >= 400 && error.status < 500 && error.status !== 429;
    if (isFinal || shown.value?.path !== wanted) {
      refusal.value = error;
    }
    return !isFinal;
  }
}

export function retryNow() {
  if (me.value === null) {
    void loadMe().then(() => watch());
  } else {
    live?.retry();
  }
}

/** The view again, after the server has refused it. */
export function reload() {
  watched = "";
  watch();
}

let meTries = 0;

async function loadMe() {
  try {
    me.value = /** @type {Me} */ (await get("me"));
    meTries = 0;
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      signInAgain();
      return;
    }
    if (me.value === null) {
      refusal.value = /** @type {ApiError} */ (error);
      meTries += 1;
      const delayMs = Math.min(30_000, 500 * 2 ** meTries) * (0.5 + Math.random() / 2);
      setTimeout(() => void loadMe().then(() => watch()), delayMs);
    }
  }
}

function signInAgain() {
  me.value = null;
  const { view } = route.value;
  if (view !== "sign-in") {
    const next = location.pathname + location.search;
    navigate(address("sign-in", "", next === "/" ? {} : { next }), { replace: true });
  }
  shown.value = null;
  watch();
}

/**
 * Throws an ApiError if the token is refused.
 *
 * @param {string} token
 */
export async function signIn(token) {
  await post("sign-in", { token }, "");
  await loadMe();
  if (me.value !== null) {
    navigate(nextOf(route.value.query), { replace: true });
    watch();
  }
}

export async function signOut() {
  try {
    await post("sign-out", {}, me.value?.csrf ?? "");
  } catch (error) {
    tell(`Could not sign out: ${/** @type {Error} */ (error).message}`);
    return;
  }
  me.value = null;
  shown.value = null;
  navigate(address("sign-in"));
  watch();
}

/**
 * Acts on a node or a job. Throws an ApiError.
 *
 * @param {string} what such as "nodes/gpu-1/drain".
 * @param {object} body
 */
export async function act(what, body = {}) {
  try {
    await post(what, body, me.value?.csrf ?? "");
  } catch (error) {
    if (error instanceof ApiError && error.status === 401) {
      signInAgain();
    }
    throw error;
  }
}

/** Shows a sentence for a while. @param {string} text */
export function tell(text) {
  clearTimeout(noticeTimer);
  notice.value = text;
  noticeTimer = setTimeout(() => {
    notice.value = "";
  }, 8000);
}
