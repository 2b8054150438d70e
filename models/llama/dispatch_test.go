package llama

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/models/hf"
)

func TestTokensThatComeToARank(t *testing.T) {
	one := Experts{Count: 8, PerToken: 1, ExpertParallelism: hf.ExpertParallelism{Ranks: 4, Load: 1}}
	require.EqualValues(t, 100, one.receivedTokens(100), "every token has one expert")
	all := Experts{Count: 8, PerToken: 8, ExpertParallelism: hf.ExpertParallelism{Ranks: 4, Load: 1}}
	require.EqualValues(t, 400, all.receivedTokens(100), "every token goes to every rank")
	many := Experts{Count: 128, PerToken: 8, ExpertParallelism: hf.ExpertParallelism{Ranks: 4, Load: 1}}
	require.EqualValues(t, 7432, many.receivedTokens(2048), "1 - C(96,8)/C(128,8) of 8192")
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.SampledFrom([]int64{2, 4, 8}).Draw(t, "ranks")
		e := Experts{
			Count:             n * rapid.Int64Range(1, 16).Draw(t, "local"),
			ExpertParallelism: hf.ExpertParallelism{Ranks: n, Load: 1},
		}
		e.PerToken = rapid.Int64Range(1, e.Count).Draw(t, "each")
		tokens := rapid.Int64Range(1, 4096).Draw(t, "tokens")
		got := e.receivedTokens(tokens)
		require.LessOrEqual(t, got, tokens*n)
		require.GreaterOrEqual(t, got, tokens*n/e.Count, "one expert at least")
		e.Load = rapid.Float64Range(1, 100).Draw(t, "skew")
		require.GreaterOrEqual(t, e.receivedTokens(tokens), got)
		require.LessOrEqual(t, e.receivedTokens(tokens), tokens*n)
		e.Load = math.Inf(1)
		require.Equal(t, tokens*n, e.receivedTokens(tokens), "all tokens of the group")
	})
}
