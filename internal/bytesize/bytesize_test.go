package bytesize_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/internal/bytesize"
)

func TestParseReadsWhatUsersWrite(t *testing.T) {
	tests := []struct {
		in   string
		want int64
	}{
		{"0", 0},
		{"17179869184", 17179869184},
		{"100B", 100},
		{"16GiB", 16 << 30},
		{"16Gi", 16 << 30},
		{"16G", 16 << 30},
		{"16g", 16 << 30},
		{"16GB", 16e9},
		{"16 gb", 16e9},
		{"512MiB", 512 << 20},
		{"24564M", 24564 << 20},
		{"64K", 64 << 10},
		{"64kB", 64e3},
		{"2TiB", 2 << 40},
		{"2TB", 2e12},
		{"1.5GiB", 3 << 29},
		{".5G", 1 << 29},
		{"0.1GB", 1e8}, // not a float: 0.1 has no finite binary fraction
		{"15.47 GiB", 16610786017},
		{" 8 GiB ", 8 << 30},
		{"0.5B", 1}, // halves go up
		{"9223372036854775807", math.MaxInt64},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			got, err := bytesize.Parse(tt.in)
			require.NoError(t, err)
			require.Equal(t, tt.want, got)
		})
	}
}

func TestParseErrorsNameTheInputAndTheCure(t *testing.T) {
	tests := []struct{ in, want string }{
		{"", "does not start with a number"},
		{"GiB", "does not start with a number"},
		{"-1GiB", "does not start with a number"},
		{"+1GiB", "does not start with a number"},
		{".", "does not start with a number"},
		{"1.2.3G", "does not start with a number"},
		{"1e9", `unknown unit "e9"`},
		{"16 GiBs", `unknown unit "GiBs"`},
		{"16,5G", `unknown unit ",5G"`},
		{"0x10", `unknown unit "x10"`},
		{"9223372036854775808", "need less than 2^63 bytes"},
		{"9000000T", "need less than 2^63 bytes"},
		{strings.Repeat("1", 100), "too many digits"},
	}
	for _, tt := range tests {
		t.Run(tt.in, func(t *testing.T) {
			_, err := bytesize.Parse(tt.in)
			require.ErrorContains(t, err, tt.want)
			require.ErrorContains(t, err, strconv.Quote(tt.in))
			require.ErrorContains(t, err, "for example 16GiB")
		})
	}
}

func TestBareNumbersThatAreTooSmallForBytesCountGiB(t *testing.T) {
	for in, want := range map[string]int64{
		"24": 24 << 30, "0.5": 1 << 29, "8\n": 8 << 30, "0": 0, "65536": 65536, "24B": 24, "512MiB": 512 << 20,
	} {
		got, err := bytesize.ParseMemory(in)
		require.NoError(t, err)
		require.Equal(t, want, got, in)
	}
	_, err := bytesize.ParseMemory("lots")
	require.ErrorContains(t, err, "memory size")
}

func TestParseOfDigitsIsTheIdentity(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := sizes().Draw(t, "n")
		got, err := bytesize.Parse(strconv.FormatInt(n, 10))
		require.NoError(t, err)
		require.Equal(t, n, got)
	})
}

// Format shows two decimals of a unit, so reading it back misses by at most half of the last digit.
func TestParseOfFormatIsWithinHalfADigit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<50).Draw(t, "n")
		got, err := bytesize.Parse(bytesize.Format(n))
		require.NoError(t, err)
		half := 0.0
		if unit := unitBytes(t, bytesize.ScaleOf(n).Unit()); unit > 1 {
			half = 0.005*float64(unit) + 1
		}
		require.InDelta(t, n, got, half)
	})
}

func TestBareAndBinarySuffixesAgreeAndAreAtLeastDecimal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<20).Draw(t, "n")
		prefix := rapid.SampledFrom([]string{"K", "M", "G", "T"}).Draw(t, "prefix")
		number := strconv.FormatInt(n, 10)
		decimal, err := bytesize.Parse(number + prefix + "B")
		require.NoError(t, err)
		binary, err := bytesize.Parse(number + prefix + "iB")
		require.NoError(t, err)
		bare, err := bytesize.Parse(number + prefix)
		require.NoError(t, err)
		require.LessOrEqual(t, decimal, binary)
		require.Equal(t, binary, bare)
	})
}

func TestFormat(t *testing.T) {
	tests := []struct {
		n    int64
		read string
	}{
		{0, "0 B"},
		{100, "100 B"},
		{1023, "1023 B"},
		{1024, "1.00 KiB"},
		{1536 << 20, "1.50 GiB"},
		{16615079936, "15.47 GiB"},
		{-(512 << 20), "-512.00 MiB"},
		{3 << 40, "3.00 TiB"},
		{math.MinInt64, "-8388608.00 TiB"},
	}
	for _, tt := range tests {
		require.Equal(t, tt.read, bytesize.Format(tt.n))
	}
}

func TestAColumnHasOneScale(t *testing.T) {
	column := []int64{512, 3 << 20, 15 << 30, -(1 << 30), 0, -1}
	scale := bytesize.ScaleOf(column...)
	require.Equal(t, "GiB", scale.Unit())
	var got []string
	for _, n := range column {
		got = append(got, scale.Format(n))
	}
	// 3 MiB is 0.0029 GiB: shown as small, never as nothing.
	require.Equal(t, []string{"<0.01", "<0.01", "15.00", "-1.00", "0.00", ">-0.01"}, got)
	require.Equal(t, "B", bytesize.ScaleOf().Unit())
}

func TestOnlyZeroLooksLikeZero(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n, other := sizes().Draw(t, "n"), sizes().Draw(t, "other")
		shown := bytesize.ScaleOf(n, other).Format(n)
		require.Equal(t, n == 0, strings.Trim(shown, "0.") == "")
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"16GiB", "16 GB", "1.5g", "", "-3", "9223372036854775807", "..", "1e9", "5\u00a0GiB"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := bytesize.Parse(s)
		if err != nil {
			return
		}
		require.GreaterOrEqual(t, n, int64(0))
		again, err := bytesize.Parse(strconv.FormatInt(n, 10))
		require.NoError(t, err)
		require.Equal(t, n, again)
	})
}

// sizes draws amounts of every magnitude, round ones among them.
func sizes() *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		n := rapid.Int64Range(0, math.MaxInt64).Draw(t, "bits")
		shift := rapid.IntRange(0, 62).Draw(t, "shift")
		if rapid.Bool().Draw(t, "round") {
			return n >> shift << shift
		}
		return n >> shift
	})
}

func unitBytes(t *rapid.T, name string) int64 {
	n, err := bytesize.Parse("1" + name)
	require.NoError(t, err)
	return n
}
