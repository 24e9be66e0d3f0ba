/** Requests to a gateway by plain HTTP. */

import type { ServerError } from "../protocol/endings.js";
import { type Fields, fieldsOf } from "../protocol/json.js";
import { refusalOf } from "./socket.js";

/** From this status on, a retry may help. */
const TOO_MANY_REQUESTS = 429;

export interface RequestOptions {
  /** Empty for none. */
  readonly token?: string;
  /** Sent as JSON by POST; without one it is a GET. */
  readonly body?: object;
  readonly signal?: AbortSignal;
}

export type Answer<T> =
  | { readonly kind: "answered"; readonly value: T }
  /** A retry cannot help. */
  | { readonly kind: "refused"; readonly error: ServerError }
  /** A retry may help. */
  | { readonly kind: "unavailable"; readonly error: ServerError }
  | { readonly kind: "unreachable"; readonly message: string; readonly cause: unknown };

/**
 * Asks a gateway, once. Throws nothing.
 *
 * @param read makes a value of the answer. If it throws, this counts as no answer.
 */
export async function request<T>(
  url: URL,
  options: RequestOptions,
  read: (answer: Fields) => T,
): Promise<Answer<T>> {
  const { token = "", body, signal } = options;
  try {
    const response = await fetch(url, {
      cache: "no-store",
      headers: {
        ...(token === "" ? {} : { Authorization: `Bearer ${token}` }),
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
      },
      ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }),
      ...(signal === undefined ? {} : { signal }),
    });
    if (response.ok) {
      const answer: unknown = await response.json();
      return { kind: "answered", value: read(fieldsOf({ answer }, "answer")) };
    }
    const ending = refusalOf(response.status, await response.text());
    if (ending.kind !== "refused") {
      throw new Error(`HTTP status ${response.status}`);
    }
    const kind = response.status < TOO_MANY_REQUESTS ? "refused" : "unavailable";
    return { kind, error: ending.error };
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    return { kind: "unreachable", message: `${url.href} does not answer: ${why}`, cause };
  }
}
