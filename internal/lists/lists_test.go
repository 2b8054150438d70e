package lists_test

import (
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/lists"
)

func odd(n int) bool { return n%2 == 1 }

func TestMapAndFilterGoElementByElement(t *testing.T) {
	numbers := []int{3, 1, 4, 1, 5}
	require.Equal(t, []string{"3", "1", "4", "1", "5"}, lists.Map(numbers, strconv.Itoa))
	require.Equal(t, []int{3, 1, 1, 5}, lists.Filter(numbers, odd))
	require.Equal(t, []int{3, 1, 4, 1, 5}, numbers)
}

func TestUnionHasEachElementThatIsAddedOnce(t *testing.T) {
	require.Equal(t, []int{3, 1, 1, 4}, lists.Union([]int{3, 1, 1}, 1, 4, 4, 3))
	require.Nil(t, lists.Union[int](nil))
}

func TestFirstIsTheFirstThatIsChosen(t *testing.T) {
	first, ok := lists.First([]int{2, 5, 3}, odd)
	require.True(t, ok)
	require.Equal(t, 5, first)
	first, ok = lists.First([]int{2, 4}, odd)
	require.False(t, ok)
	require.Zero(t, first)
}

func TestOfNothing(t *testing.T) {
	require.Equal(t, []string{}, lists.Map(nil, strconv.Itoa))
	require.Nil(t, lists.Filter([]int{2}, odd))
}

func TestWithAndWithoutLeaveTheListAsItIs(t *testing.T) {
	list := []int{1, 2, 3}
	require.Equal(t, []int{1, 7, 3}, lists.Replace(list, 1, 7))
	require.Equal(t, []int{1, 3}, lists.RemoveAt(list, 1))
	require.Equal(t, []int{1, 2, 3}, list)
}

func TestSumAddsWhatIsSaidOfEachElement(t *testing.T) {
	require.Equal(t, int64(6), lists.Sum([]string{"a", "bb", "ccc"}, func(s string) int64 { return int64(len(s)) }))
	require.Zero(t, lists.Sum(nil, func(int) int64 { return 1 }))
}

func TestAscendingCountsFromZero(t *testing.T) {
	require.Equal(t, []int{0, 1, 2}, lists.Ascending(3))
	require.Empty(t, lists.Ascending(0))
}

func TestMostIsTheFirstOfTheLargestAboveZero(t *testing.T) {
	length := func(s string) int64 { return int64(len(s)) }
	most, ok := lists.Largest([]string{"a", "bcd", "efg", ""}, length)
	require.True(t, ok)
	require.Equal(t, "bcd", most)
	_, ok = lists.Largest([]string{"", ""}, length)
	require.False(t, ok)
}

func TestGroupsAreInTheOrderOfTheirFirstElements(t *testing.T) {
	require.Equal(t, [][]int{{3, 1, 1, 5}, {4}}, lists.Groups([]int{3, 1, 4, 1, 5}, odd))
	require.Empty(t, lists.Groups([]int{}, odd))
}

func TestTimesAndPresentAndSet(t *testing.T) {
	require.Equal(t, []string{"0", "1", "2"}, lists.Make(3, strconv.Itoa))
	require.Empty(t, lists.Make(int64(-1), func(n int64) int64 { return n }))
	half := func(n int) int { return n / 2 }
	require.Equal(t, []int{1, 2}, lists.NonZero([]int{1, 3, 0, 4}, half), "zeros are left out")
	require.Nil(t, lists.NonZero([]int{1}, half))
	require.Equal(t, map[int]bool{1: true, 2: true}, lists.ToSet([]int{1, 2, 1}))
}

func TestKeysAreOfEitherMapAndInOrder(t *testing.T) {
	a, b := map[string]int{"c": 1, "b": 2}, map[string]int{"b": 3, "a": 4}
	require.Equal(t, []string{"a", "b", "c"}, lists.Keys(a, b))
	require.Empty(t, lists.Keys[string, int](nil, nil))
}
