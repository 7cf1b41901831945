// Where in a list the steps of a session stand. They have the indexes from 0 on; but a fork has no
// step where one of the other session was not shared, and its list closes up over that. Pure.

/** Say of `gaps`, as the API has them, which index is at a place of the list, and the other way. */
export function placesOf(gaps) {
  return {
    indexAt(place) {
      let index = place;
      for (const [first, last] of gaps) {
        if (index < first) break;
        index += last - first + 1;
      }
      return index;
    },
    /** Of an index without a step, the place of the next one that has one. */
    placeOf(index) {
      let place = index;
      for (const [first, last] of gaps) {
        if (index < first) break;
        place -= Math.min(index, last + 1) - first;
      }
      return place;
    },
  };
}
