package guides_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/bench/reference/guides"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/device"
)

// What a claim is said of is something that vprof could train, on a GPU that
// it knows; what torch.compile makes of it aside.
func TestEveryClaimIsAboutACaseOfItsModels(t *testing.T) {
	registry := all.Models()
	for _, g := range guides.GuidesFor("") {
		require.NotEmpty(t, g.Claims, g.Title)
		for _, c := range g.Claims {
			for _, name := range c.Models {
				m, err := registry.Lookup(name)
				require.NoError(t, err)
				k, err := m.Complete(c.ApplyTo(m.Default))
				require.NoError(t, err, "%s, %s", g.Title, c.Where)
				if c.Baseline != nil {
					than, err := m.Complete(c.Baseline.ApplyTo(k))
					require.NoError(t, err)
					require.NotEqual(t, k, than, "%s, %s compares a case with itself", g.Title, c.Where)
				}
			}
			if c.GPU != "" {
				_, err := device.Lookup(c.GPU)
				require.NoError(t, err, "%s, %s", g.Title, c.Where)
			}
		}
	}
}

// What is not read because the model is not named has no claim about it.
func TestGuidesNamingAModelHaveAllItsClaims(t *testing.T) {
	about := func(guides []guides.Guide, model string) (n int) {
		for _, g := range guides {
			for _, c := range g.Claims {
				if c.IsAbout(model) {
					n++
				}
			}
		}
		return n
	}
	for _, m := range all.Models().All() {
		require.Equal(t, about(guides.GuidesFor(""), m.Name), about(guides.GuidesFor(m.Name), m.Name), m.Name)
	}
	require.Len(t, guides.GuidesFor("redimnet-b2"), 1)
	require.Empty(t, guides.GuidesFor("redimnet-b0"))
}

func TestFiguresAreReadWithTheirLimits(t *testing.T) {
	const mib, gib = 1 << 20, 1 << 30
	for text, want := range map[string]guides.Value{
		"~1.5 GB":          {Low: 1.5 * gib, High: 1.5 * gib},
		"~5-6 GB":          {Low: 5 * gib, High: 6 * gib},
		"2.5-3 GB":         {Low: 2.5 * gib, High: 3 * gib},
		"≥ 6-8 GiB":        {Low: 6 * gib, High: 8 * gib},
		"~4 GiB or less":   {High: 4 * gib},
		"6 MB":             {Low: 6 * mib, High: 6 * mib},
		"30-40 %":          {Share: true, Low: 0.3, High: 0.4},
		"same":             {Share: true},
		"512B":             {Low: 512, High: 512},
		"100 % or less":    {Share: true, High: 1},
		"0.0 KiB":          {},
		"1024-1024.0 KB":   {Low: mib, High: mib},
		"~12-14 MiB":       {Low: 12 * mib, High: 14 * mib},
		"~0.5-2 MB":        {Low: mib / 2, High: 2 * mib},
		"~40 %":            {Share: true, Low: 0.4, High: 0.4},
		"1048576 GB":       {Low: 1 << 50, High: 1 << 50},
		"~10-100 MB":       {Low: 10 * mib, High: 100 * mib},
		"≥ 8 GB":           {Low: 8 * gib, High: 8 * gib},
		"≥8 GB":            {Low: 8 * gib, High: 8 * gib},
		"~500-1024 MB":     {Low: 500 * mib, High: gib},
		"0-0 B":            {},
		"3 GB or less":     {High: 3 * gib},
		"1-2 GB or less":   {High: 2 * gib},
		"99.5-99.75 %":     {Share: true, Low: 0.995, High: 0.9975},
		"~31-98 MB":        {Low: 31 * mib, High: 98 * mib},
		"1.25 GiB":         {Low: 1.25 * gib, High: 1.25 * gib},
		"1.25 GiB or less": {High: 1.25 * gib},
	} {
		f, err := guides.ParseValue(text)
		require.NoError(t, err, text)
		require.Equal(t, text, f.Text)
		require.Equal(t, want.Share, f.Share, text)
		require.InDelta(t, want.Low, f.Low, 1e-9, text)
		require.InDelta(t, want.High, f.High, 1e-9, text)
	}
	for _, text := range []string{
		"", "many", "5 TB", "6-5 GB", "-1 GB", "140 %", "1048577 GB", "5", "5 iB", "1e3 MB",
		"~~5 GB", "5 GB or more",
	} {
		_, err := guides.ParseValue(text)
		require.Error(t, err, text)
	}
}

func TestBatchRangesReadWhatTheyWrite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from := rapid.IntRange(1, 1<<20).Draw(t, "from")
		r := guides.Range{From: from, To: rapid.IntRange(from, 1<<21).Draw(t, "to")}
		again, err := guides.ParseRange(r.String())
		require.NoError(t, err)
		require.Equal(t, r, again)
	})
	for _, text := range []string{"", "0", "-4", "8-", "8-4", "8-16-32", "eight"} {
		_, err := guides.ParseRange(text)
		require.Error(t, err, text)
	}
}

func TestReadSaysWhichClaimIsWrong(t *testing.T) {
	const head = "{title: G, project: p, models: [m], claims: ["
	for claim, want := range map[string]string{
		"{where: a, of: device}":                                                       "the claim has no number",
		"{where: a, of: devices, figure: 1 GB}":                                        `unknown quantity "devices"`,
		"{of: device, figure: 1 GB}":                                                   "where: the place in the guide is missing",
		"{where: a, of: device, figure: 1 GB, phase: loss}":                            `of "device" with phase "loss"`,
		"{where: a, of: peak of, figure: 1 GB}":                                        `of "peak of" with phase ""`,
		"{where: a, of: fits, figure: 1 GB, gpu: t4, batch: 1}":                        "has no number",
		"{where: a, of: device, figure: 1 GB, doubted: true}":                          "doubted: only claims that a batch fits may have it",
		"{where: a, of: fits, batch: 1}":                                               "needs a GPU and a batch",
		"{where: a, of: device, figure: 30 %}":                                         "a share needs trained parameters",
		"{where: a, of: trainable, figure: 3 GB}":                                      "a share needs trained parameters",
		"{where: a, of: device, figure: 1 GB, amp: fp8}":                               `there is no precision "fp8"`,
		"{where: a, of: device, figure: 30 %, than: {amp: fp8}}":                       "there is no precision",
		"{where: a, of: device, figure: 1 GB, dataset: 10 %}":                          "dataset: need a size in bytes",
		"{where: a, of: device, figure: 1 GB, accumulate: -1}":                         "accumulate: -1: need 0 or more micro-batches",
		"{where: a, of: device, figure: lots}":                                         `"lots": write a value like`,
		"{where: a, of: device, figure: 1 GB, batch: 8-4}":                             `"8-4": need a batch size`,
		"{where: a, of: device, figure: 1 GB, bach: 8}":                                "bach",
		"{where: a, of: device, figure: {low: 1}}":                                     "a value must be text",
		"{where: a, of: device, models: [], figure: 1 GB}":                             "the claim names no model",
		"{where: a, of: device, figure: 1 GB, checkpointing: maybe, settings: {a: b}}": "cannot unmarshal",
	} {
		_, err := guides.Read([]byte(head + claim + "]}"))
		require.ErrorContains(t, err, want, claim)
	}
	for _, text := range []string{"", "{title: G}"} {
		_, err := guides.Read([]byte(text))
		require.ErrorContains(t, err, "title or project is missing")
	}
}

// FuzzRead: whatever is read either is refused or has claims with limits.
func FuzzRead(f *testing.F) {
	f.Add("{title: G, project: p, models: [m], claims: [{where: a, of: device, figure: ~5-6 GB, batch: 8-16, than: " +
		"{batch: 32}}]}")
	f.Add("{title: G, project: p, models: [m], claims: [{where: a, of: weights, figure: 1 MB, checkpointing: true, " +
		"settings: {n: 3}, dataset: 1 GB}]}")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := guides.Read([]byte(text))
		if err != nil {
			require.True(t, strings.HasPrefix(err.Error(), "guide: "))
			return
		}
		for _, c := range g.Claims {
			require.LessOrEqual(t, c.Value.Low, c.Value.High)
			require.GreaterOrEqual(t, c.Value.Low, 0.0)
			require.NotEmpty(t, c.Models)
			require.NotEmpty(t, c.ValueText())
			_ = c.Conditions.String()
		}
	})
}

func lookup(t *testing.T, name string) models.Model {
	m, err := all.Models().Lookup(name)
	require.NoError(t, err)
	return m
}

// says returns the figures that match a case.
func says(t *testing.T, name, gpu string, c models.Case) []string {
	m := lookup(t, name)
	c, err := m.Complete(c)
	require.NoError(t, err)
	var out []string
	for _, found := range guides.MatchingClaims(m, c, gpu) {
		out = append(out, found.Claim.ValueText())
	}
	return out
}

func TestClaimsMatchOnlyTheirConditions(t *testing.T) {
	full := models.Case{Stage: "full", Batch: 32}
	require.Equal(t, []string{"~4-6 GB", "~5-6 GB", "~2-3 GB", "~2-3 GB", "~2.5 GB"},
		says(t, "redimnet-b2", "t4", full), "what says most comes first")
	require.Equal(t, []string{"~2-4 GB", "~3-4 GB", "~2-3 GB", "~2.5 GB"},
		says(t, "redimnet-b2", "t4", models.Case{Stage: "frozen", Batch: 32}))
	half := full
	half.AMP = "fp16"
	require.Equal(t, []string{"~4-5 GB"}, says(t, "redimnet-b2", "rtx-5060-ti", half), "of that GPU alone")
	require.Empty(t, says(t, "redimnet-b2", "t4", half))
	for _, other := range []models.Case{
		{Stage: "full", Batch: 33},
		{Stage: "full", Batch: 32, Checkpointing: true},
		{Stage: "full", Batch: 32, Optimizer: "sgd"},
		{Stage: "full", Batch: 32, Dataset: 1 << 30},
		{Stage: "full", Batch: 32, AMP: "bf16"},
	} {
		require.Empty(t, says(t, "redimnet-b2", "rtx-5060-ti", other), "%+v", other)
	}
	full.Accumulate = 4
	require.Len(t, says(t, "redimnet-b2", "t4", full), 5, "accumulation is no condition")
	require.Empty(t, says(t, "redimnet-b0", "t4", full))
	require.Empty(t, says(t, "redimnet-b2", "rtx-5060-ti", models.Case{Stage: "full", Batch: 96, AMP: "fp16"}),
		"said of torch.compile")

	require.Equal(t, []string{"~2.5-3 GB", "~31-98 MB", "~4-6 GB"},
		says(t, "bdslw-spoter", "t4", models.Case{Batch: 8}))
	require.Equal(t, []string{"~19.8 GB", "~20 GB"},
		says(t, "naics-embedder-stage01", "quadro-rtx-6000", models.Case{Batch: 45, AMP: "fp16"}))
	require.Empty(t, says(t, "naics-embedder-stage01", "quadro-rtx-6000",
		models.Case{Batch: 45, AMP: "fp16", Settings: models.Settings{"max-length": 128}}))
	require.Equal(t, []string{"~15.0 GB", "was 15 GB"},
		says(t, "spectrogram-gan", "t4", models.Case{Batch: 32, Dataset: 13 << 30}))
	require.Equal(t, []string{"~4 GiB or less"}, says(t, "patch-vqvae", "t4",
		models.Case{Batch: 1, AMP: "fp16", Checkpointing: true, Settings: models.Settings{"n-patches": 4}}),
		"stride does not matter")
}
