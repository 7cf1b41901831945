// The icon of the page's tab: it tells how many approvals wait while another tab is in front.

const COUNT_MAX = 99; // two digits are all that can be read at this size

/** Show a count on the icon, or the plain icon for none. */
export function showCount(count) {
  const link = document.querySelector("link[rel=icon]");
  link.href = count > 0 ? `data:image/svg+xml,${encodeURIComponent(draw(count))}` : "favicon.svg";
}

/** The only part that varies is `count`, a number. */
function draw(count) {
  const text = count > COUNT_MAX ? `${COUNT_MAX}+` : String(count);
  return `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
  <rect width="32" height="32" rx="8" fill="#85500a"/>
  <text x="16" y="23" font-family="sans-serif" font-size="${text.length > 2 ? 15 : 20}"
    font-weight="700" text-anchor="middle" fill="#fff">${text}</text>
</svg>`;
}
