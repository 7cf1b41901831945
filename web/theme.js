// Applies the chosen colours before anything is drawn. A classic script: a module would come late.

try {
  const chosen = localStorage.getItem("agentstate.theme");
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
} catch {
  // A browser that keeps nothing: as the system says.
}
