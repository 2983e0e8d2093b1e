package netplugin

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"

	"github.com/containernetworking/cni/pkg/types"
)

// attachment is what ADD did, or was about to do, for one sandbox. It is
// written before the first interface is made, so that DEL finds after a crash
// what may be there, whatever the configuration says by then.
type attachment struct {
	ContainerID string       `json:"containerID"`
	IfName      string       `json:"ifName"`
	Namespace   string       `json:"namespace"`
	Pod         string       `json:"pod"`
	IsOrdinary  bool         `json:"isOrdinary,omitempty"` // not DANM's
	Delegations []delegation `json:"delegations"`
}

// delegation is one call of another plugin.
type delegation struct {
	Plugin string          `json:"plugin"`
	IfName string          `json:"ifName"`
	Config json.RawMessage `json:"config"`
	Result json.RawMessage `json:"result,omitempty"` // once ADD succeeded
	// Endpoint and Addresses are what DANM reserved for the interface.
	Endpoint  string         `json:"endpoint,omitempty"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

const (
	stateSuffix = ".json"
	// Configurations may hold secrets, so nobody else may read them.
	stateFileMode, stateDirMode = 0o600, 0o700
)

// stateDir holds the attachments of one network. Both parts of a file's name
// were checked by skel; neither can hold a slash.
type stateDir string

func (c Config) stateDir() stateDir { return stateDir(filepath.Join(c.DataDir, c.Name)) }

func (d stateDir) path(containerID, ifName string) string {
	return filepath.Join(string(d), containerID+"-"+ifName+stateSuffix)
}

// load returns nil if the attachment is not known. A file that cannot be read
// as one, as after a power loss, is none either: without it, DEL still clears
// what the API knows, and the interfaces go with their namespace.
func (d stateDir) load(containerID, ifName string) (*attachment, error) {
	return loadFile(d.path(containerID, ifName))
}

func loadFile(path string) (*attachment, error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, types.NewError(types.ErrIOFailure, "reading the note of an attachment", err.Error())
	}
	var a attachment
	if err := json.Unmarshal(data, &a); err != nil {
		return nil, nil
	}
	return &a, nil
}

// all returns every attachment of the network whose file can be read as one.
func (d stateDir) all() ([]*attachment, error) {
	paths, err := filepath.Glob(filepath.Join(string(d), "*"+stateSuffix))
	if err != nil {
		return nil, fmt.Errorf("listing attachments: %w", err)
	}
	var all []*attachment
	for _, path := range paths {
		a, err := loadFile(path)
		if err != nil {
			return nil, err
		}
		if a != nil {
			all = append(all, a)
		}
	}
	return all, nil
}

// save replaces the file in one step; a crash leaves the old one or the new.
func (d stateDir) save(a *attachment) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encoding an attachment: %w", err)
	}
	if err := os.MkdirAll(string(d), stateDirMode); err != nil {
		return fmt.Errorf("making the folder for attachments: %w", err)
	}
	path := d.path(a.ContainerID, a.IfName)
	if err := os.WriteFile(path+".new", data, stateFileMode); err != nil {
		return fmt.Errorf("writing an attachment: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("writing an attachment: %w", err)
	}
	return nil
}

func (d stateDir) remove(containerID, ifName string) error {
	err := os.Remove(d.path(containerID, ifName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the note of an attachment: %w", err)
	}
	return nil
}
