// @ts-check
/** The access token, if the service needs one. It is kept in this tab only. */

import { SessionRefusedError, offeredDirections } from "./sdk.js";

/** @import { TokenStore } from "./types.js" */

const KEY = "lingua.token";

/** What a token consists of. Everything else would not fit into a connection's headers. */
const TOKEN = /^[A-Za-z0-9._~+-]{1,8192}$/;

export class TokenKeeper {
  #store;
  #token = "";
  /** For all who wait for a token; null if nobody does. @type {Promise<string> | null} */
  #asked = null;
  /** @type {(token: string) => void} */
  #answer = () => undefined;
  /** The user has closed the dialog, and is not asked again before doing something. */
  #isDismissed = false;

  /** @param {TokenStore} store */
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
   * Opens the dialog, unless the user has closed it. Returns the token that the user enters.
   *
   * @returns {Promise<string>}
   */
  ask() {
    if (this.#store.state.token === "" && !this.#isDismissed) {
      const token = this.#token === "" ? "needed" : "refused";
      this.#store.dispatch({ type: "token", token });
    }
    this.#asked ??= new Promise((resolve) => {
      this.#answer = resolve;
    });
    return this.#asked;
  }

  /** The user closes the dialog without a token. */
  dismiss() {
    this.#isDismissed = true;
    this.#store.dispatch({ type: "token", token: "" });
  }

  /** The user does something that needs a token: opens the dialog again if one is waited for. */
  remind() {
    this.#isDismissed = false;
    if (this.#asked !== null) {
      void this.ask();
    }
  }

  /** Takes a token from the address, if there is one; returns whether. */
  readAddress() {
    const token = fromAddress();
    if (token !== "") {
      this.#accept(token);
    }
    return token !== "";
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
    this.#accept(token);
    return true;
  }

  /** @param {string} token */
  #accept(token) {
    this.#token = token;
    keep(token);
    this.#isDismissed = false;
    this.#store.dispatch({ type: "token", token: "" });
    this.#answer(token);
    this.#asked = null;
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
