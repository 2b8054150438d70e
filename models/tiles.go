package models

import (
	"fmt"
	"strconv"
)

// Tiles is in how many parts, one after the other, feed-forward layers see the tokens of a
// row, and again in backward (axolotl's tiled_mlp). Zero is that they see all at once.
type Tiles int64

// AutoTiles is as many parts as axolotl takes if it is not told: one for every 32768 tokens.
const AutoTiles = -1

const (
	autoTiles = "auto"
	mostTiles = 1 << 16
)

// ParseTiles reads a number of parts, or "auto".
func ParseTiles(text string) (Tiles, error) {
	if text == autoTiles {
		return AutoTiles, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > mostTiles {
		return 0, fmt.Errorf("%q is neither %s nor a number of tiles from 1 to %d", text, autoTiles, mostTiles)
	}
	return Tiles(n), nil
}

// Count returns the number of parts, [AutoTiles] or zero.
func (t Tiles) Count() int64 { return int64(t) }

// String returns what [ParseTiles] reads; empty for none.
func (t Tiles) String() string {
	switch t {
	case 0:
		return ""
	case AutoTiles:
		return autoTiles
	}
	return strconv.FormatInt(int64(t), 10)
}

// MarshalText implements [encoding.TextMarshaler].
func (t Tiles) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Tiles) UnmarshalText(text []byte) error { return unmarshal(t, text, ParseTiles) }
