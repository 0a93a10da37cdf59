// Runs before anything is drawn, so that a remembered theme does not flash.
document.documentElement.classList.add("js");
try {
  const theme = localStorage.getItem("nmt-report-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch (error) {
  // storage is closed to this page; the system's theme will do
}
