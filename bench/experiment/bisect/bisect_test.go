package bisect

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A value that only grows: every change is found, by at most as many values as were announced for each.
func TestSearchFindsAllChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.IntRange(1, 60).Draw(t, "last")
		changed := rapid.SliceOfNDistinct(rapid.IntRange(1, last), 0, min(last, 4), rapid.ID).Draw(t, "changed")
		slices.Sort(changed)
		value := func(i int) int64 {
			n := int64(100)
			for _, c := range changed {
				if i >= c {
					n += 10
				}
			}
			return n
		}
		asked := map[int]bool{}
		first := 0
		s := &ChangeSearch{
			Equal: func(a, b int64) bool { return a == b },
			OnRemaining: func(n int) {
				first = max(first, n)
				require.Positive(t, n)
			},
		}
		steps, err := s.FindChanges(last, func(i int) (int64, error) {
			require.False(t, asked[i], "position %d is asked for twice", i)
			asked[i] = true
			return value(i), nil
		})
		require.NoError(t, err)
		require.Len(t, steps, len(changed))
		for i, step := range steps {
			require.Equal(t, ValueChange{changed[i] - 1, changed[i], value(changed[i] - 1), value(changed[i])}, step)
		}
		require.LessOrEqual(t, len(asked), 2+max(1, len(changed))*maxTriesAmong(last))
		require.GreaterOrEqual(t, first, 2+maxTriesAmong(last))
	})
}

// search tells no one how many values are left.
var search = ChangeSearch{Equal: func(a, b int64) bool { return a == b }, OnRemaining: func(int) {}}

// Where environments are unusable, the change is found between the nearest that are usable.
func TestSearchGoesAroundUnusablePositions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		last := rapid.IntRange(2, 12).Draw(t, "last")
		at := rapid.IntRange(1, last).Draw(t, "at")
		broken := rapid.SliceOfNDistinct(rapid.IntRange(1, last-1), 0, last-1, rapid.ID).Draw(t, "broken")
		steps, err := search.FindChanges(last, func(i int) (int64, error) {
			if slices.Contains(broken, i) {
				return 0, fmt.Errorf("%w: position %d", ErrUnusable, i)
			}
			return int64(min(1, max(0, i-at+1))), nil
		})
		require.NoError(t, err)
		require.Len(t, steps, 1)
		require.True(t, steps[0].Low < at && at <= steps[0].High, "%v", steps)
	})
	failed := errors.New("disk full")
	_, err := search.FindChanges(4, func(i int) (int64, error) {
		if i == 2 {
			return 0, failed
		}
		return int64(i), nil
	})
	require.ErrorIs(t, err, failed)
}

// finder makes environments of three packages, of which one changes the peak at a release.
func finder(peak func(Pins) (int64, error)) *CauseFinder {
	return &CauseFinder{
		Old:  Pins{"a": "1.0", "b": "1.0", "c": "1.0", "same": "3"},
		New:  Pins{"a": "2.0", "b": "1.9", "c": "1.1", "same": "3"},
		Peak: peak,
		Releases: func(string) ([]string, error) {
			var all []string
			for i := range 12 {
				all = append(all, "1."+strconv.Itoa(i), "1."+strconv.Itoa(i)+"rc1")
			}
			return all, nil
		},
		ChangeSearch: search,
	}
}

func TestFinderNamesPackageAndRelease(t *testing.T) {
	causes, err := finder(func(p Pins) (int64, error) {
		n := int64(100)
		if CompareReleases(p["b"], "1.7") >= 0 {
			n += 25
		}
		if p["a"] == "2.0" {
			n -= 10
		}
		return n, nil
	}).FindCauses()
	require.NoError(t, err)
	require.Len(t, causes, 2)
	require.Equal(t, ReleaseChange{"a", "1.11", "2.0"}, causes[0].ReleaseChange)
	require.Equal(t, []int64{100, 90}, []int64{causes[0].Before, causes[0].After})
	require.Equal(t, ReleaseChange{"b", "1.6", "1.7"}, causes[1].ReleaseChange)
	require.Equal(t, []int64{90, 115}, []int64{causes[1].Before, causes[1].After})
	require.Equal(t, "2.0", causes[1].Low["a"])
}

func TestPackagesThatNeedEachOtherAreOneCause(t *testing.T) {
	causes, err := finder(func(p Pins) (int64, error) {
		if (p["a"] == "2.0") != (p["b"] == "1.9") {
			return 0, ErrUnusable
		}
		if p["b"] == "1.9" {
			return 7, nil
		}
		return 5, nil
	}).FindCauses()
	require.NoError(t, err)
	require.Len(t, causes, 1)
	require.Equal(t, ReleaseChange{"a", "1.0", "2.0"}, causes[0].ReleaseChange)
	require.Equal(t, []ReleaseChange{{"b", "1.0", "1.9"}}, causes[0].RequiredChanges)
	require.Equal(t, []string{"1.0", "1.0", "1.0"},
		[]string{causes[0].Low["a"], causes[0].Low["b"], causes[0].Low["c"]})
	require.Equal(t, "1.0", causes[0].High["c"], "which is not needed")
}

// Packages that only one of two needs are tried alone: c runs with the old b, and the cause is c alone.
func TestPackagesAreTriedAlone(t *testing.T) {
	causes, err := finder(func(p Pins) (int64, error) {
		switch {
		case p["a"] == "2.0" && p["c"] == "1.0":
			return 0, ErrUnusable // a needs the new c
		case p["c"] != "1.0":
			return 7, nil
		}
		return 5, nil
	}).FindCauses()
	require.NoError(t, err)
	require.Len(t, causes, 1)
	require.Equal(t, "c", causes[0].Package)
	require.Empty(t, causes[0].RequiredChanges)
}

func TestReleasesAreOrdered(t *testing.T) {
	sorted := []string{
		"0.9", "1.0.dev1", "1.0a1", "1.0b2", "1.0rc1", "1.0", "1.0.post1", "1.0.1", "1.2", "1.10",
		"5.12.1",
	}
	for i, a := range sorted {
		for j, b := range sorted {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			require.Equal(t, want, CompareReleases(a, b), "%s and %s", a, b)
		}
	}
	require.Zero(t, CompareReleases("2.15.0+cu130", "2.15"))
	line := ReleaseChange{"p", "1.10", "1.8"}.ReleasesBetween([]string{"1.7", "1.8", "1.9rc1", "1.9", "1.10.0", "1.11"})
	require.Equal(t, []string{"1.10", "1.9", "1.8"}, line)
}
