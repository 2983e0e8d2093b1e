package netplugin

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/containernetworking/cni/pkg/types"

	"github.com/danm-chaos/danm-chaos/cleaner/danm"
	"github.com/danm-chaos/danm-chaos/clusters/danmcni"
)

const (
	// defaultTimeout is what DANM gives itself for all interfaces of a pod.
	defaultTimeout = 30 * time.Second
	// defaultDataDir keeps, for each attachment, what DEL has to undo.
	defaultDataDir = "/var/lib/cni/danm"
)

// Types of the plugins that can carry a pod's DANM interfaces.
const (
	bridgeType  = "bridge"
	ptpType     = "ptp"
	macvlanType = "macvlan"
)

// template is the configuration of another plugin as the user wrote it, with
// every key that we do not know.
type template map[string]any

func (t template) pluginType() string {
	s, _ := t["type"].(string)
	return s
}

// Config is the network configuration that a runtime passes on stdin.
type Config struct {
	CNIVersion string    `json:"cniVersion"`
	Name       string    `json:"name"`
	DNS        types.DNS `json:"dns"`

	// Kubeconfig is the path of the file by which the node reaches the API.
	Kubeconfig string `json:"kubeconfig"`
	// DanmAPI is DANM's API group; danm.io if empty.
	DanmAPI danm.Group `json:"danmAPI"`
	// Variant is the write order; danm-4.3 if empty.
	Variant danmcni.Variant `json:"variant"`
	// NodeName is written into the endpoints; the host name if empty.
	NodeName string `json:"nodeName"`
	// Timeout bounds every command, as "30s", which is the default.
	Timeout duration `json:"timeout"`
	// LogFile gets one JSON line per command and per swallowed error. Nothing
	// is logged if it is empty.
	LogFile string `json:"logFile"`
	// RecordFile gets one line of a history for every attachment that was made
	// and that is about to be undone, for a harness. Nothing is recorded if it
	// is empty.
	RecordFile string `json:"recordFile"`
	// DataDir is where attachments are noted; /var/lib/cni/danm if empty.
	DataDir string `json:"dataDir"`
	// Attach is the plugin for the interfaces of annotated pods: bridge, ptp
	// or macvlan, without ipam. A bridge for each network if empty.
	Attach template `json:"attach"`
	// Delegate is the whole configuration of the plugin for other pods.
	Delegate template `json:"delegate"`

	// What the runtime adds.
	RuntimeConfig    json.RawMessage      `json:"runtimeConfig"`
	PrevResult       json.RawMessage      `json:"prevResult"`
	ValidAttachments []types.GCAttachment `json:"cni.dev/valid-attachments"`
}

// duration is written like "30s".
type duration time.Duration

// UnmarshalJSON reads a duration as Go writes it.
func (d *duration) UnmarshalJSON(data []byte) error {
	var s string
	if err := json.Unmarshal(data, &s); err != nil {
		return err
	}
	parsed, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf("%q is not a duration like 30s", s)
	}
	*d = duration(parsed)
	return nil
}

// parseConfig reads a network configuration, fills in the defaults and says
// which key is wrong. The errors carry CNI codes and never repeat the text,
// which may hold secrets of the plugins that we delegate to.
func parseConfig(data []byte) (Config, error) {
	var c Config
	if err := json.Unmarshal(data, &c); err != nil {
		return c, types.NewError(types.ErrDecodingFailure, "reading the network configuration", err.Error())
	}
	if err := c.complete(); err != nil {
		return c, err
	}
	if err := c.check(); err != nil {
		return c, types.NewError(types.ErrInvalidNetworkConfig, "reading the network configuration", err.Error())
	}
	return c, nil
}

func (c *Config) complete() error {
	if c.DanmAPI == "" {
		c.DanmAPI = danm.GroupDanmIO
	}
	if c.Variant == "" {
		c.Variant = danmcni.Danm43
	}
	if c.Timeout == 0 {
		c.Timeout = duration(defaultTimeout)
	}
	if c.DataDir == "" {
		c.DataDir = defaultDataDir
	}
	if c.Attach == nil {
		c.Attach = template{"type": bridgeType}
	}
	if c.NodeName == "" {
		name, err := os.Hostname()
		if err != nil {
			return types.NewError(types.ErrIOFailure, "reading the host name", err.Error())
		}
		c.NodeName = name
	}
	return nil
}

func (c *Config) check() error {
	if _, err := danm.ParseGroup(string(c.DanmAPI)); err != nil {
		return fmt.Errorf("danmAPI: %w", err)
	}
	if _, err := danmcni.ParseVariant(string(c.Variant)); err != nil {
		return fmt.Errorf("variant: %w", err)
	}
	if c.Timeout < 0 {
		return fmt.Errorf("timeout: %s is negative", time.Duration(c.Timeout))
	}
	if !filepath.IsAbs(c.Kubeconfig) {
		return fmt.Errorf("kubeconfig: %q is not an absolute path", c.Kubeconfig)
	}
	if !filepath.IsAbs(c.DataDir) {
		return fmt.Errorf("dataDir: %q is not an absolute path", c.DataDir)
	}
	if c.RecordFile != "" && !filepath.IsAbs(c.RecordFile) {
		return fmt.Errorf("recordFile: %q is not an absolute path", c.RecordFile)
	}
	return c.checkTemplates()
}

func (c *Config) checkTemplates() error {
	switch t := c.Attach.pluginType(); t {
	case bridgeType, ptpType, macvlanType:
	default:
		return fmt.Errorf("attach: type %q is not bridge, ptp or macvlan", t)
	}
	if c.Attach["ipam"] != nil {
		return fmt.Errorf("attach: ipam: addresses come from DANM")
	}
	if c.Delegate != nil && c.Delegate.pluginType() == "" {
		return fmt.Errorf("delegate: it names no type")
	}
	return nil
}
