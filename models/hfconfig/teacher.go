package hfconfig

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vprof/vprof/internal/hub"
	"github.com/vprof/vprof/internal/input"
)

// TeacherMark separates the student's file from the teacher's in a model name: hf:student.json,teacher=teacher.json.
const TeacherMark = "," + teacherKey + "="

// teacherKey is the key of the teacher's configuration within the student's.
const teacherKey = "teacher"

// addTeacher inserts a teacher's configuration into the student's.
func addTeacher(path string, data []byte, teacher string) ([]byte, error) {
	if info, err := os.Stat(teacher); err == nil && info.IsDir() {
		teacher = filepath.Join(teacher, configName)
	}
	teacher = configPath(teacher)
	other, _, err := readModel(teacher)
	if err != nil {
		return nil, err
	}
	if _, err := newReader(teacher, other); err != nil {
		return nil, err
	}
	r, err := newReader(path, data)
	if err != nil {
		return nil, err
	}
	r.raw[teacherKey] = other
	return json.Marshal(r.raw)
}

func readModel(path string) (data []byte, named bool, err error) {
	data, err = readFile(path)
	missing, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return data, false, err
	}
	if config, known := OfHub(path); known {
		return config, true, nil
	}
	reason := input.FileReason(missing.Err)
	if hubName.MatchString(path) {
		reason = "neither vprof's list nor the hub's caches on this machine have its " + configName
	}
	if hub.Default != nil && hubName.MatchString(path) {
		fetched, err := hub.Default.Fetch(path, "", configName)
		if err == nil {
			data, err = readFile(fetched)
			return data, true, err
		}
		reason += "; " + err.Error()
	}
	return nil, false, &input.FormatError{File: path, Reason: reason + howToGet(path)}
}

// readTeacher reads the teacher of a distillation; nil if there is none.
func (r *reader) readTeacher() (*architecture, error) {
	if _, ok := r.raw[teacherKey]; !ok {
		return nil, nil
	}
	t := r.sub(teacherKey)
	_, f, err := t.family()
	if err != nil {
		return nil, err
	}
	t.aliases = f.aliases
	t.refuseCommonKeys()
	t.weightType()
	return new(f.read(t)), nil
}
