/** Where tokens come from, and whether the next one may help. Errors never contain one. */

import { type Ending, lost, refused, serverError } from "../protocol/endings.js";

/**
 * Returns the token for the next connection; empty for none.
 *
 * @param refused the token that a gateway has refused, which must not be returned again; else null.
 */
export type TokenFunction = (refused: string | null) => string | Promise<string>;

/** A token, or a function that returns one. Functions are asked at every connection. */
export type Token = string | TokenFunction;

/** What fits into a WebSocket's subprotocol. Every JWT does. */
const TOKEN = /^[A-Za-z0-9._~+-]+$/;

/**
 * Provides a token for every connection, and decides whether a refusal is final.
 *
 * The refusal of a fixed string is final. Otherwise the function is asked once more, and the refusal
 * is final if it returns the same token, or if the new one is refused as well.
 */
export class TokenSource {
  /** What the function threw, if it could not provide the last token. */
  failure: unknown = undefined;
  /** The token for the next connection; empty for none. */
  current = "";
  #source: TokenFunction | null = null;
  /** The token that was refused last, and why. */
  #refused: string | null = null;
  #said = "";
  #refusals = 0;

  constructor(token: Token | undefined) {
    if (typeof token === "function") {
      this.#source = token;
    } else if (token !== undefined) {
      const what = whatIsWrong(token);
      if (what !== null) {
        throw typeof token === "string"
          ? new RangeError(`token: ${what}`)
          : new TypeError(`token: ${what}`);
      }
      this.current = token;
    }
  }

  /** Fetches the token for the next connection. Returns why that failed, or null. */
  async ask(withinMs: number): Promise<Ending | null> {
    if (this.#source === null) {
      return null;
    }
    try {
      const token = await inTime(this.#source(this.#refused), withinMs);
      const what = (token as unknown) === "" ? null : whatIsWrong(token);
      if (what !== null) {
        throw new TokenProblem(`the function's token ${what}`);
      }
      this.current = token;
    } catch (error) {
      this.failure = error;
      return lost(`no token: ${error instanceof TokenProblem ? error.message : nameOf(error)}`);
    }
    this.failure = undefined;
    if (this.current === this.#refused) {
      return unauthenticated(`${this.#said}; the token function returned the same token again`);
    }
    return null;
  }

  /**
   * Returns how a connection ended; expired if another token may help.
   *
   * @param ending by the server's account.
   * @param good whether the server had accepted the connection.
   */
  judge(ending: Ending, good: boolean): Ending {
    if (good) {
      this.#refused = null;
      this.#refusals = 0;
    }
    if (ending.kind !== "refused" || ending.error.reason !== "UNAUTHENTICATED") {
      return ending;
    }
    this.#refusals += 1;
    this.#refused = this.current;
    this.#said = ending.error.message;
    if (this.#source !== null && this.#refusals === 1) {
      return { kind: "expired", why: `UNAUTHENTICATED: ${this.#said}` };
    }
    return unauthenticated(this.#said + this.#hint(good));
  }

  #hint(good: boolean): string {
    if (this.#source !== null) {
      return "; the previous token was refused as well";
    }
    return this.current !== "" && good ? "; pass a function as token to renew it" : "";
  }
}

/** Its message is ours, and contains no secret. */
class TokenProblem extends Error {}

async function inTime(token: string | Promise<string>, withinMs: number): Promise<string> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(() => {
      reject(new TokenProblem(`none within ${Math.round(withinMs)} ms`));
    }, withinMs);
  });
  try {
    return await Promise.race([token, late]);
  } finally {
    clearTimeout(timer);
  }
}

/** Returns what is wrong with a token, without showing it; null if nothing is. */
function whatIsWrong(token: unknown): string | null {
  if (typeof token !== "string") {
    return `must be text, and is ${typeof token}`;
  }
  return TOKEN.test(token) ? null : "must be letters, digits and . _ ~ + - alone, without Bearer";
}

function unauthenticated(message: string): Ending {
  return refused(serverError("UNAUTHENTICATED", message));
}

/** Describes an error without its message, which may contain a secret. */
function nameOf(error: unknown): string {
  return `the token function threw ${error instanceof Error ? error.name : typeof error}`;
}
