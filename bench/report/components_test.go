package report

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Components that only some batches have, like paged state, move no other value to another row.
func TestRareComponentsKeepRowsInTheirPlace(t *testing.T) {
	r := toyPlan(1)
	require.Greater(t, len(r.Points), 1)
	want := r.Sheets()[0]
	for _, at := range []int{0, 1} {
		e := *r.Points[at].Estimate
		e.Components = append(slices.Clone(e.Components), Component{Name: "paged state", Bytes: 1 << 30})
		some := *r
		some.Points = slices.Clone(r.Points)
		some.Points[at].Estimate = &e
		got := some.Sheets()[0]
		require.Len(t, got.Rows, len(want.Rows)+1)
		i := slices.IndexFunc(got.Rows, func(row []string) bool { return row[0] == "paged state" })
		require.NotEqual(t, -1, i)
		require.Equal(t, want.Rows, slices.Delete(slices.Clone(got.Rows), i, i+1))
	}
}
