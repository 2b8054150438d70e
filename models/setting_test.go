package models

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func adjustable() Model {
	m := toyModel("toy")
	m.Settings = []Setting{
		{Name: "width", Usage: "features", Default: 64, Min: 1, Max: 128},
		{Name: "heads", Usage: "attention heads", Default: 4, Min: 1, Max: 16},
	}
	m.Check = func(c Case) error {
		if c.Settings["width"]%c.Settings["heads"] != 0 {
			return &CaseError{Model: m.Name, Field: "heads", Reason: "they do not divide the width"}
		}
		return nil
	}
	return m
}

func TestCompleteFillsSettings(t *testing.T) {
	c, err := adjustable().Complete(Case{Settings: Settings{"heads": 8}})
	require.NoError(t, err)
	require.Equal(t, Settings{"width": 64, "heads": 8}, c.Settings)

	c, err = toyModel("toy").Complete(Case{})
	require.NoError(t, err)
	require.Nil(t, c.Settings)
}

func TestCompleteLeavesTheGivenSettingsAlone(t *testing.T) {
	given := Settings{"heads": 8}
	_, err := adjustable().Complete(Case{Settings: given})
	require.NoError(t, err)
	require.Equal(t, Settings{"heads": 8}, given)
}

// Images of captured models have two sides, which one number sets; a model with a setting of that name keeps it.
func TestImageSizeIsHeightAndWidth(t *testing.T) {
	m := toyModel("toy")
	m.Settings = []Setting{{Name: "height", Default: 224, Max: 512}, {Name: "width", Default: 224, Max: 512}}
	given := Settings{"image-size": 96}
	c, err := m.Complete(Case{Settings: given})
	require.NoError(t, err)
	require.Equal(t, Settings{"height": 96, "width": 96}, c.Settings)
	require.Equal(t, Settings{"image-size": 96}, given)

	m.Settings = append(m.Settings, Setting{Name: "image-size", Default: 32, Max: 512})
	c, err = m.Complete(Case{Settings: given})
	require.NoError(t, err)
	require.Equal(t, Settings{"height": 224, "width": 224, "image-size": 96}, c.Settings)
}

func TestImpossibleSettingsNameTheRule(t *testing.T) {
	for want, s := range map[string]Settings{
		"toy: width: 0 is out of range: features, from 1 to 128":                               {"width": 0},
		"toy: width: 129 is out of range: features, from 1 to 128":                             {"width": 129},
		"toy: head: there is no such setting; near it: heads; its settings are width, heads":   {"head": 1},
		"toy: heads: they do not divide the width":                                             {"heads": 7},
		"toy: beds: there is no such setting; near it: heads; its settings are width, heads":   {"beds": 1, "width": 2},
		"toy: wheels: there is no such setting; near it: heads; its settings are width, heads": {"wheels": 4},
	} {
		_, err := adjustable().Complete(Case{Settings: s})
		var wrong *CaseError
		require.ErrorAs(t, err, &wrong, want)
		require.EqualError(t, err, want)
	}
}
