/**
 * Reads fields of protobuf's JSON form. No I/O.
 *
 * Absent fields have their default value, as protobuf leaves those out; unknown fields are ignored.
 * A field of the wrong type throws WireError, which names it.
 */

/** The server sent something that is not in the contract. */
export class WireError extends Error {
  override readonly name = "WireError";
}

export type Fields = Readonly<Record<string, unknown>>;

export function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Returns a message; an empty one if it is absent. */
export function fieldsOf(from: Fields, name: string): Fields {
  const value = from[name];
  if (value === undefined || value === null) {
    return {};
  }
  if (!isFields(value)) {
    throw new WireError(`${name} is not an object`);
  }
  return value;
}

export function listOf(from: Fields, name: string): readonly unknown[] {
  const value = from[name];
  if (value === undefined || value === null) {
    return [];
  }
  if (!Array.isArray(value)) {
    throw new WireError(`${name} is not an array`);
  }
  return value as readonly unknown[];
}

export function messagesOf(from: Fields, name: string): readonly Fields[] {
  const list = listOf(from, name);
  if (!list.every(isFields)) {
    throw new WireError(`${name} is not an array of objects`);
  }
  return list;
}

export function textOf(from: Fields, name: string): string {
  const value = from[name];
  if (value === undefined || value === null) {
    return "";
  }
  if (typeof value !== "string") {
    throw new WireError(`${name} is not a string`);
  }
  return value;
}

export function textListOf(from: Fields, name: string): readonly string[] {
  const list = listOf(from, name);
  if (!list.every((each) => typeof each === "string")) {
    throw new WireError(`${name} is not an array of strings`);
  }
  return list;
}

/** Returns a map from strings to strings. */
export function textsByName(from: Fields, name: string): Readonly<Record<string, string>> {
  const entries = Object.entries(fieldsOf(from, name));
  if (!entries.every((entry): entry is [string, string] => typeof entry[1] === "string")) {
    throw new WireError(`${name} has a value that is not a string`);
  }
  return Object.fromEntries(entries);
}

/** Returns an integer, which may be a number or, as 64-bit integers are, a string. */
export function integer(value: unknown, name: string): number {
  const number = typeof value === "string" && /^\d{1,16}$/.test(value) ? Number(value) : value;
  if (typeof number !== "number" || !Number.isSafeInteger(number) || number < 0) {
    throw new WireError(`${name} is not an integer from 0 to 2^53`);
  }
  return number;
}

export function integerOf(from: Fields, name: string): number {
  return optionalInteger(from, name) ?? 0;
}

export function optionalInteger(from: Fields, name: string): number | null {
  const value = from[name];
  return value === undefined || value === null ? null : integer(value, name);
}

export function integersOf(from: Fields, name: string): readonly number[] {
  return listOf(from, name).map((each) => integer(each, name));
}

/** Returns the name of an enum's value without its prefix. */
export function enumOf(from: Fields, name: string, prefix: string): string {
  const value = from[name];
  // A newer server's value may come as its number.
  if (typeof value === "number") {
    return `UNKNOWN_${value}`;
  }
  const text = textOf(from, name);
  if (text === "") {
    return "UNSPECIFIED";
  }
  return text.startsWith(prefix) ? text.slice(prefix.length) : text;
}
