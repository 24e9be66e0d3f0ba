// @ts-check
/** The access token, if the service needs one. It is kept in this tab only. */

import { SessionRefusedError, offeredDirections } from "./sdk.js";

/** @import { Store } from "./store.js" */

const KEY = "lingua.token";

/** What a token consists of. Everything else would not fit into a connection's headers. */
const TOKEN = /^[A-Za-z0-9._~+-]{1,8192}$/;

export class TokenKeeper {
  #store;
  #token = "";
  /** Those who wait for a token. @type {((token: string) => void)[]} */
  #waiting = [];

  /** @param {Store} store */
  constructor(store) {
    this.#store = store;
    this.#token = fromAddress() || stored();
    keep(this.#token);
  }

  /** The token to use now; empty if none is known. */
  get current() {
    return this.#token;
  }

  /**
   * Returns a token for a connection. If the one that is known was refused, it asks the user.
   *
   * @param {string | null} refused
   * @returns {Promise<string>}
   */
  async get(refused) {
    if (refused === null || refused !== this.#token) {
      return this.#token;
    }
    return this.ask();
  }

  /**
   * Opens the dialog. Returns the token that the user enters.
   *
   * @returns {Promise<string>}
   */
  ask() {
    if (this.#store.state.token === "") {
      const token = this.#token === "" ? "needed" : "refused";
      this.#store.dispatch({ type: "token", token });
    }
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /**
   * Takes what the user has entered, if the service accepts it.
   *
   * @param {string} entered
   * @returns {Promise<boolean>}
   */
  async use(entered) {
    const token = entered.trim().replace(/^Bearer\s+/i, "");
    this.#store.dispatch({ type: "token", token: "checking" });
    if (!TOKEN.test(token) || !(await isAccepted(token))) {
      this.#store.dispatch({ type: "token", token: "refused" });
      return false;
    }
    this.#token = token;
    keep(token);
    this.#store.dispatch({ type: "token", token: "" });
    for (const resolve of this.#waiting.splice(0)) {
      resolve(token);
    }
    return true;
  }
}

/** Whether the service accepts a token; true if it does not answer, because then nobody knows. */
async function isAccepted(/** @type {string} */ token) {
  try {
    await offeredDirections(location.origin, { token });
    return true;
  } catch (error) {
    return !(error instanceof SessionRefusedError);
  }
}

/** Reads #token=... once, and removes it from the address: it would end up in the history. */
function fromAddress() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found === null) {
    return "";
  }
  history.replaceState(null, "", location.pathname + location.search);
  return TOKEN.test(found) ? found : "";
}

function stored() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/** @param {string} token */
function keep(token) {
  try {
    if (token !== "") {
      sessionStorage.setItem(KEY, token);
    }
  } catch {
    // The browser keeps nothing for this page: the token lasts until it is closed.
  }
}
