// Runs before the first paint, so that a chosen theme does not flash the other one.
try {
  var wanted = localStorage.getItem('komainu.theme');
  if (wanted === 'dark' || wanted === 'light') document.documentElement.dataset.theme = wanted;
} catch (error) {
  // storage is switched off: the system's theme will do
}
