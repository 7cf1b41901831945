"""The agent of the full demo as a command that is told its base URL by a variable, as SDKs are."""

from __future__ import annotations

import json
import sys

from agentstate.ground.settings import read_environment
from agentstate.house import demo_full_agent

if __name__ == "__main__":
    ORDER = json.loads(sys.argv[1])
    sys.exit(demo_full_agent.main(ORDER | {"base_url": read_environment()["OPENAI_BASE_URL"]}))
