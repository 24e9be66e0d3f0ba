// @ts-check
/** The form for a token. */

import { signal } from "@preact/signals";
import { useEffect, useRef } from "preact/hooks";

import { html } from "./html.js";
import { refusal, signIn } from "./state.js";
import { Banner } from "./view-parts.js";

/** @import { ApiError } from "./api.js" */

const busy = signal(false);
const problem = signal("");

export function SignIn() {
  const input = useRef(/** @type {HTMLInputElement | null} */ (null));
  useEffect(() => {
    problem.value = "";
    input.current?.focus();
  }, []);
  const submit = async () => {
    const token = input.current?.value.trim() ?? "";
    if (busy.value || token === "") {
      return;
    }
    busy.value = true;
    problem.value = "";
    try {
      await signIn(token);
    } catch (error) {
      problem.value = wordsOf(/** @type {ApiError} */ (error));
      input.current?.select();
    }
    busy.value = false;
  };
  const unreachable = refusal.value?.status === 0;
  return html`<div class="sign-in">
    <h1 tabindex="-1">Sign in to the console</h1>
    ${
      unreachable &&
      html`<${Banner} title="The console is not reachable" name="unreachable"
        ><p>Trying again.</p><//
      >`
    }
    <form
      class="card"
      data-role="sign-in"
      onSubmit=${(/** @type {Event} */ event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <label class="field stacked" for="token">
        <span class="field-name">Token</span>
      </label>
      <input
        id="token"
        name="token"
        type="password"
        autocomplete="off"
        autocapitalize="off"
        spellcheck=${false}
        maxlength="8192"
        required
        aria-describedby="token-help"
        aria-invalid=${problem.value !== ""}
        ref=${input}
      />
      ${problem.value !== "" && html`<p class="refused" role="alert">${problem.value}</p>`}
      <button type="submit" class="button primary" data-action="sign-in" disabled=${busy.value}>
        ${busy.value ? "Checking …" : "Sign in"}
      </button>
    </form>
    <section id="token-help" class="help">
      <h2>How to get a token</h2>
      <p>
        Ask whoever runs the scheduler, or create one on a machine that has the secret. An operator
        may look and act, a viewer may only look:
      </p>
      <pre tabindex="0" aria-label="Commands"><code>lingua token operator --name you --for 12h
lingua token viewer --name you --for 12h</code></pre>
      <p>The token stays in a cookie that scripts cannot read, until it expires or you sign out.</p>
    </section>
  </div>`;
}

/** @param {ApiError} error */
function wordsOf({ status, message }) {
  if (status === 401 || status === 403) {
    return `The token was refused: ${message}`;
  }
  return status === 0 ? `No answer: ${message}. Try again.` : message;
}
