package models

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLoRAIsReadAsPeftNamesIt(t *testing.T) {
	for text, want := range map[string]LoRA{
		"r=8,alpha=16,target=all-linear": {Rank: 8, Alpha: 16},
		"r=4":                            {Rank: 4, Alpha: 8},
		"4":                              {Rank: 4, Alpha: 8},
		"target=q_proj+v_proj, dropout=0.05": {
			Rank: 8, Alpha: 8, Dropout: 0.05,
			Targets: []string{"q_proj", "v_proj"},
		},
		"target=q_proj,v_proj,r=2": {Rank: 2, Alpha: 8, Targets: []string{"q_proj", "v_proj"}},
		"r=4,save=lm_head,embed_tokens": {
			Rank: 4, Alpha: 8,
			Save: []string{"lm_head", "embed_tokens"},
		},
		`match=.*\.(q|v)_proj{1,2}`: {Rank: 8, Alpha: 8, Match: `.*\.(q|v)_proj{1,2}`},
		"r=2,save=score,match=a.b":  {Rank: 2, Alpha: 8, Save: []string{"score"}, Match: "a.b"},
		"parameters=experts.gate_up_proj,experts.down_proj": {
			Rank: 8, Alpha: 8,
			Parameters: []string{"experts.gate_up_proj", "experts.down_proj"},
		},
		"target=all-linear,r=2,parameters=a": {
			Rank: 2, Alpha: 8, Parameters: []string{"a"},
			Targets: []string{"all-linear"},
		},
		"towers=false,r=2": {Rank: 2, Alpha: 8, NoTowers: true},
		"rank=4,lora_alpha=6,target_modules=q,v,rank_pattern=q:2": {
			Rank: 4, Alpha: 6, Targets: []string{"q", "v"}, Patterns: []RankPattern{{"q", 2}},
		},
		"parameters=a,match=b": {Rank: 8, Alpha: 8, Parameters: []string{"a"}, Match: "b"},
		"exclude_modules=a+b,layers_to_transform=0+2,bias=all": {
			Rank: 8, Alpha: 8, Excluded: []string{"a", "b"}, Blocks: []int64{0, 2}, Bias: AllBiases,
		},
		"rank_pattern=down_proj:64+layers.1.k:2,lora_bias=true,bias=boft_only": {
			Rank: 8, Alpha: 8, Patterns: []RankPattern{{"down_proj", 64}, {"layers.1.k", 2}}, Biased: true,
			Bias: AdaptedBiases,
		},
		"trainable_token_indices=3,bias=none":   {Rank: 8, Alpha: 8, Tokens: []int64{3}},
		"alpha=32,r=64,target=self_attn.o_proj": {Rank: 64, Alpha: 32, Targets: []string{"self_attn.o_proj"}},
	} {
		got, err := ParseLoRA(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
}

func TestLoRAErrorsNameTheKey(t *testing.T) {
	for text, want := range map[string]string{
		"":                           `"" is not key=value; the options are method, r, alpha, dropout, dtype, dora, towers, exclude_modules`,
		"r=0":                        `r: "0" is not a whole number from 1 to 65536`,
		"r=many":                     `r: "many" is not a whole number`,
		"r=99999999999999999999":     `r: "99999999999999999999" is not a whole number`,
		"r=8,r=8":                    "r: given twice",
		"dropout=1":                  `dropout: invalid dropout "1": need a probability from 0 to below 1`,
		"dropout=NaN":                `dropout: invalid dropout "NaN": need a probability from 0 to below 1`,
		"target=":                    `target: "" has an empty name; write names like q_proj+v_proj`,
		"target=q_proj+":             `target: "q_proj+" has an empty name`,
		"target=q_proj,":             `target: "q_proj+" has an empty name`,
		"target=q_proj,r=2,k":        `"k" is not key=value`,
		"rank_patterns=8":            `there is no option "rank_patterns"; near it: rank_pattern; the options are method, r, alpha`,
		"r=8,lora_r=8":               "r: given twice",
		"save=":                      `save: "" has an empty name; write names like`,
		"towers=no":                  `towers: "no" is neither true nor false`,
		"parameters=a,,r=2":          `parameters: "a+" has an empty name`,
		"save=a,,r=2":                `save: "a+" has an empty name`,
		"exclude_modules=a++b":       `exclude_modules: "a++b" has an empty name`,
		"layers_to_transform=-1":     `layers_to_transform: "-1" is not a whole number`,
		"rank_pattern=down_proj":     `rank_pattern: invalid rank "down_proj" of a layer: need its name and rank, like down_proj:64`,
		"rank_pattern=(:4":           `rank_pattern: "(" is not a regular expression`,
		"rank_pattern=a:0":           `rank_pattern: "0" is not a whole number from 1`,
		"bias=some":                  `bias: there is no bias "some"; use none, all or lora_only`,
		"lora_bias=maybe":            `lora_bias: "maybe" is neither true nor false`,
		"trainable_token_indices=3+": `trainable_token_indices: "" is not a whole number`,
		"match=":                     `match: "" is not a regular expression`,
		"r=2,match=(?!a)b":           `match: "(?!a)b" is not a regular expression that Go can read (RE2 syntax, without look-ahead)`,
		"target=a,match=b":           "match and target both choose the adapted layers; give only one of them",
	} {
		_, err := ParseLoRA(text)
		require.ErrorContains(t, err, want, text)
	}
}

// FuzzParseLoRA: what has been read reads the same when printed.
func FuzzParseLoRA(f *testing.F) {
	for _, text := range []string{
		"r=8,alpha=16,target=all-linear", "target=a+b.c,dropout=0.5", "save=a+b,match=a{1,2}",
		"parameters=a+b,target=all-linear", "r=8,", "=", "r=-1", "rank_pattern=a:2+b:3,bias=all",
		"trainable_token_indices=0+7,layers_to_transform=1",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseLoRA(text)
		if err != nil {
			return
		}
		again, err := ParseLoRA(l.String())
		require.NoError(t, err)
		require.Equal(t, l, again)
	})
}
