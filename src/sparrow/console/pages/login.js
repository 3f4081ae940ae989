// Login by user and password, or by token; the broker sets a cookie that scripts cannot read.
import { html, useState } from "../lib.js";
import { post } from "../api.js";
import { identify, wordsFor } from "../state.js";
import { Field, Heading } from "../parts/basics.js";

/** @param {{wasIn: boolean}} props */
export function Login({ wasIn }) {
  const [form, setForm] = useState({ user: "", password: "", token: "" });
  const [byToken, setByToken] = useState(false);
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  const set = (name) => (event) => setForm((old) => ({ ...old, [name]: event.target.value }));
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await post("/v1/session", byToken ? { token: form.token } : { user: form.user, password: form.password });
      await identify();
    } catch (failure) {
      setError(/** @type {Error} */ (failure));
    }
    setBusy(false);
  };
  return html`<form class="login" onSubmit=${submit}>
    <${Heading} title="Log in to Sparrow" />
    ${wasIn && html`<p class="note" role="status">Your session is over: log in again. What you looked at is still there.</p>`}
    ${byToken
      ? html`<${Field} label="Token"><input type="password" autocomplete="current-password" value=${form.token} onInput=${set("token")} required /><//>`
      : html`<${Field} label="User"><input autocomplete="username" value=${form.user} onInput=${set("user")} required /><//>
          <${Field} label="Password"><input type="password" autocomplete="current-password" value=${form.password} onInput=${set("password")} required /><//>`}
    ${error && html`<p class="note bad" role="alert">${wordsFor(error)}</p>`}
    <div class="actions">
      <button type="submit" class="main" disabled=${busy}>${busy ? "Logging in …" : "Log in"}</button>
      <button type="button" class="plain" onClick=${() => setByToken(!byToken)}>${byToken ? "By user and password" : "By token"}</button>
    </div>
  </form>`;
}
