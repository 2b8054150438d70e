package sweep

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models"
)

const (
	// maxBatch is the largest accepted batch size.
	maxBatch = models.MaxBatch
	// maxBatches is the largest number of batch sizes in a list.
	maxBatches = 4096
	// maxRangeItems is the largest number of batch sizes in a range without a step.
	maxRangeItems = 64
)

// ParseBatches parses a list of batch sizes and ranges, separated by commas. A range multiplies by a factor (x), adds a
// step (+), or adds one: "8,16,32", "8..128x2" (8, 16, 32, 64, 128), "8..64+8", "1..8". It ends at most at its last
// size. The result is ascending without duplicates.
func ParseBatches(list string) ([]int, error) {
	var sizes []int
	for item := range strings.SplitSeq(list, ",") {
		part, err := parseBatchItem(strings.TrimSpace(item))
		if err != nil {
			return nil, fmt.Errorf("batch list %q: %w", list, err)
		}
		sizes = append(sizes, part...)
		if len(sizes) > maxBatches {
			return nil, fmt.Errorf("batch list %q: more than %d sizes", list, maxBatches)
		}
	}
	slices.Sort(sizes)
	return slices.Compact(sizes), nil
}

func parseBatchItem(item string) ([]int, error) {
	first, rest, isRange := strings.Cut(item, "..")
	from, err := parseBatch(first)
	if err != nil || !isRange {
		return []int{from}, err
	}
	at := strings.IndexAny(rest, "x+")
	each := at < 0
	if each {
		at, rest = len(rest), rest+"+1"
	}
	to, err := parseBatch(rest[:at])
	switch {
	case err != nil:
		return nil, err
	case to < from:
		return nil, fmt.Errorf("the range %s ends below its start; write the smaller size first", item)
	case each && to-from >= maxRangeItems:
		return nil, fmt.Errorf("the range %s has %d batch sizes; write a step, like %sx2 (doubles) or %s+8 (adds 8)",
			item, to-from+1, item, item)
	}
	by, err := strconv.Atoi(rest[at+1:])
	switch grows := rest[at] == 'x'; {
	case err != nil || by > maxBatch:
		return nil, fmt.Errorf("invalid step %q of a range: need x2 to double, or +8 to add 8", rest[at:])
	case grows && by < 2:
		return nil, fmt.Errorf("a range with the factor %d never ends; the smallest factor is 2", by)
	case by < 1:
		return nil, fmt.Errorf("a range with the step %d never ends; the smallest step is 1", by)
	case (to-from)/by >= maxBatches && !grows:
		return nil, fmt.Errorf("the range %s has more than %d batch sizes; use a larger step", item, maxBatches)
	case grows:
		return expandRange(from, to, func(b int) int { return b * by }), nil
	default:
		return expandRange(from, to, func(b int) int { return b + by }), nil
	}
}

func expandRange(from, to int, next func(int) int) []int {
	var sizes []int
	for b := from; b <= to; b = next(b) {
		sizes = append(sizes, b)
	}
	return sizes
}

func parseBatch(s string) (int, error) {
	b, err := strconv.Atoi(s)
	switch {
	case s == "":
		return 0, errors.New("a size between commas is missing; write sizes like 8,16,32")
	case errors.Is(err, strconv.ErrRange) || err == nil && b > maxBatch:
		return 0, fmt.Errorf("%s is above the largest batch size, %d", s, maxBatch)
	case err != nil:
		hint := "; sizes are like 64, 8,16 or 8..128x2"
		if from, to, ok := strings.Cut(s, "-"); ok && from != "" && to != "" {
			hint = fmt.Sprintf("; ranges are %s..%sx2 or %s..%s+8", from, to, from, to)
		}
		return 0, fmt.Errorf("%q is not a whole number%s", s, hint)
	case b < 1:
		return 0, fmt.Errorf("%d is not a batch size; need 1 or more", b)
	}
	return b, nil
}
