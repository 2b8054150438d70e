package models

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestTrainingForQuantizationIsReadAsItIsWritten(t *testing.T) {
	for _, text := range []string{"8da4w", "8da4w:group=32", "int8-int4", "int8-int4:group=128"} {
		q, err := ParseQAT(text)
		require.NoError(t, err)
		require.Equal(t, text, q.String())
	}
	for text, want := range map[string]string{
		"8da4":          `there is no training for quantization "8da4"`,
		"8da4w:size=2":  `there is no option "size"; the options of 8da4w are group`,
		"8da4w:group=x": `group: "x" is not a whole number from 2 to 65536`,
	} {
		_, err := ParseQAT(text)
		require.ErrorContains(t, err, want)
	}
}
