// The form in front of a server with users.

import { logIn } from "./api.js";
import { h, setText } from "./dom.js";

export function show({ main, done }) {
  const user = h("input", { id: "login-user", name: "user", autocomplete: "username", autocapitalize: "off", spellcheck: "false", value: "default", required: true });
  const password = h("input", { id: "login-password", name: "password", type: "password", autocomplete: "current-password", required: true });
  const error = h("p", { class: "error", role: "alert", hidden: true });
  const button = h("button", { type: "submit", class: "main" }, "Log in");
  const form = h("form", { class: "card login", "aria-labelledby": "login-name", onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    error.hidden = true;
    try {
      await logIn(user.value, password.value);
      done();
    } catch (failure) {
      setText(error, failure.message);
      error.hidden = false;
      password.select();
    } finally {
      button.disabled = false;
    }
  } },
  h("h2", { id: "login-name" }, "Log in"),
  h("label", {}, "User", user), h("label", {}, "Password", password), error, button);
  main.append(form);
  password.focus();
}
