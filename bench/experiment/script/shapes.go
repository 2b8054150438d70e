package script

import (
	"encoding/json"
	"io"

	"github.com/vprof/vprof/internal/input"
)

// mostShapes limits the file of --data-shapes, in bytes.
const mostShapes = 1 << 20

// CheckShapes checks that a file of shapes of data is JSON with the known sections. The hook reads the kinds in them.
func CheckShapes(path string) error {
	f, err := input.OpenFile(path)
	if err != nil {
		return err
	}
	defer f.Close()
	decoder := json.NewDecoder(io.LimitReader(f, mostShapes))
	decoder.DisallowUnknownFields()
	var sections struct {
		Images                                     string
		Columns, Datasets, Classes, Folders, Files map[string]any
	}
	if err := decoder.Decode(&sections); err != nil {
		return input.FileErrorf(path, "%v; the sections are images, columns, datasets, classes, folders and files", err)
	}
	return nil
}
