package plots

import (
	"testing"

	"pgregory.net/rapid"
)

// However long a timeline is, it is drawn with few columns that keep its peak.
func TestColumnsKeepThePeak(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := make([]moment, rapid.IntRange(1, 4*columns).Draw(t, "moments"))
		peak := rapid.IntRange(0, len(all)-1).Draw(t, "peak")
		all[peak].total = 1
		seen := highest(all)
		if len(seen) > columns {
			t.Fatalf("%d columns", len(seen))
		}
		found := false
		for x, i := range seen {
			found = found || i == peak
			if x > 0 && i <= seen[x-1] {
				t.Fatalf("column %d shows moment %d after %d", x, i, seen[x-1])
			}
		}
		if !found {
			t.Fatal("the peak is not drawn")
		}
	})
}
