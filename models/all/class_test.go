package all

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hfconfig"
)

// The class of transformers that a listed model stands for has as many parameters as the model, in whatever sizes.
func TestClassesHaveTheParametersOfTheirModels(t *testing.T) {
	for _, m := range Models().All() {
		if m.Class == nil {
			continue
		}
		for _, s := range m.Settings {
			c, err := m.Complete(models.Case{Settings: models.Settings{s.Name: s.Default / 2}})
			if err != nil {
				continue
			}
			class, reason := m.LibraryClass(c)
			config, transformers := strings.CutPrefix(class.Spec, "hf:")
			if reason != "" || !transformers {
				continue
			}
			same, err := hfconfig.Parse("config.json", []byte(config))
			require.NoError(t, err, "%s %s", m.Name, s.Name)
			require.Equal(t, total(t, m, c), total(t, same, same.Default), "%s %s", m.Name, s.Name)
		}
	}
}

func total(t *testing.T, m models.Model, c models.Case) int64 {
	t.Helper()
	c, err := m.Complete(c)
	require.NoError(t, err)
	trainer, err := m.Build(c)
	require.NoError(t, err)
	return trainer.Counts().Total
}

// What records a compiled step is said with the settings that the class has, or which it has not.
func TestWhatRecordsACompiledStep(t *testing.T) {
	for name, cases := range map[string]map[string]models.Settings{
		"gpt2": {
			"vprof capture gpt2 --compile --amp none records it": nil,
			"vprof capture gpt2 --compile --amp none --set layers=2 --set seq-len=256 records it": {
				"layers": 2, "seq-len": 256,
			},
			"the library's class does not depend on packed": {"packed": 0},
		},
		"bert-base":   {"vprof capture bert-base --compile --amp none --set padding=0 records it": {"padding": 0}},
		"redimnet-b2": {"redimnet-b2 is no class of a library; capture your own code, as docs/compile.md has it": nil},
	} {
		m, err := Models().Lookup(name)
		require.NoError(t, err)
		for want, settings := range cases {
			c, err := m.Complete(models.Case{Settings: settings, MemoryOptions: models.MemoryOptions{Compile: true}})
			require.NoError(t, err)
			require.Equal(t, want, m.NotRecordedReason(c))
		}
	}
}
